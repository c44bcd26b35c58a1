"""What all parts speak of: topologies, records, timelines, errors. It knows nothing else of ours."""
