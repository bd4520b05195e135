"""One server for trained models, behind protocols that clients already speak."""
