"""What everything stands on: errors, names, time, schemas, hashing."""
