"""The demo `git`: the history of a repository as a stream of commits and as a table of files."""
