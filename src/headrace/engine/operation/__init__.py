"""An app in operation: started, watched, started again, its status."""
