"""rookery under other libraries' names; one file per library, imported on demand."""
