"""Long runs of a worker on a real Kafka: is everything flat that has to be?"""
