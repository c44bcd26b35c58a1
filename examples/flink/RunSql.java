import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Runs a file of Flink SQL on a cluster inside this process, as {@code sql-client.sh -f FILE} does on a real
 * one: java -cp 'jars/*' RunSql.java FILE. Statements end with a semicolon at the end of a line.
 */
public final class RunSql {
  private static final Pattern SET = Pattern.compile("SET\\s+'([^']*)'\\s*=\\s*'([^']*)'");

  public static void main(String[] arguments) throws Exception {
    String text = Files.readString(Path.of(arguments[0])).replaceAll("(?m)^--.*$", "");
    Configuration settings = new Configuration();
    List<String> statements = new ArrayList<>();
    for (String statement : text.split("(?m);\\s*$")) {
      Matcher set = SET.matcher(statement.strip());
      if (set.matches()) {
        settings.setString(set.group(1), set.group(2));
      } else if (!statement.isBlank()) {
        statements.add(statement);
      }
    }
    settings.setString("execution.target", "local");
    TableEnvironment tables =
        TableEnvironment.create(EnvironmentSettings.newInstance().withConfiguration(settings).build());
    for (String statement : statements) {
      var result = tables.executeSql(statement);
      if (statement.strip().startsWith("INSERT")) {
        System.out.println("started");
        result.await();
      }
    }
  }
}
