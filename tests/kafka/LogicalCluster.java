import java.io.IOException;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;

/** Admits tokens as Confluent Cloud does: only beside the cluster and the identity pool that they are meant for. */
public class LogicalCluster extends OAuthBearerValidatorCallbackHandler {
    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback one : callbacks) {
            if (one instanceof OAuthBearerExtensionsValidatorCallback) {
                require((OAuthBearerExtensionsValidatorCallback) one, "logicalCluster", "lkc-12345");
                require((OAuthBearerExtensionsValidatorCallback) one, "identityPoolId", "pool-12345");
            } else {
                super.handle(new Callback[] {one});
            }
        }
    }

    private static void require(OAuthBearerExtensionsValidatorCallback told, String name, String value) {
        if (value.equals(told.inputExtensions().map().get(name))) told.valid(name);
        else told.error(name, "it is not " + value);
    }
}
