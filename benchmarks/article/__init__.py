"""The laboratory of the article: its troubles had again on this machine, in naive designs and in Fencepost."""
