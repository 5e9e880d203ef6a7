"""Where rows come from: a folder for each kind of source, with its spec, its decisions, and its facts."""
