"""The ServerApp that a federation's app names."""

from fedseq.flower.apps.server import make_server_app

app = make_server_app()
