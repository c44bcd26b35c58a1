"""What the worker needs of Faust and aiokafka, private members included: fetches become record batches."""
