"""Tables of an app kept in MariaDB."""
