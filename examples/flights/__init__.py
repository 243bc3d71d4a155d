"""The parts of the demo: the flights of 2013 from New York, on any store that several processes can use."""
