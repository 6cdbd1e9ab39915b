"""The foundation of all rooms: errors, names, time, schemas, hashing."""
