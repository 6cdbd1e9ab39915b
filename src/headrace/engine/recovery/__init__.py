"""What an app does after damage and loss: lost epochs, another owner, replaced topics, backups, checks."""
