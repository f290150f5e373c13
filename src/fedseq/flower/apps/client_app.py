"""The ClientApp that a federation's app names."""

from fedseq.flower.apps.client import make_client_app

app = make_client_app()
