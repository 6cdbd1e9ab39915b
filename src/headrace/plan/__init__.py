"""What was asked, as frozen values."""
