"""A real federation on Flower: its folder, its processes, and the apps that Flower runs on the server and the nodes."""
