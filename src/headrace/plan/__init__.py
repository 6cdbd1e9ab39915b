"""The plan of an app: frozen values that describe its steps."""
