"""From the results of measurements to the page, its plots and the table of the README."""
