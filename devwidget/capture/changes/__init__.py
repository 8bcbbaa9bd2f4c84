"""Has anything changed that a snapshot shows? Asked after each cell, at a tenth of the price of a snapshot."""
