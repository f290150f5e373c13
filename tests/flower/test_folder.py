"""What `fedseq federation init` writes, and what it refuses to write."""

import datetime
import os
import runpy
import stat
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from flwr.common.config import flatten_dict, fuse_dicts, parse_config_args

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.flower import app_run, federation_folder, keys, registration
from fedseq.flower.federation_folder import Federation
from fedseq.flower.keys import read_keys
from fedseq.flower.run_options import Settings, read_run_config
from fedseq.flower.run_options import words as toml_words


def run_config(made):
    return tomllib.loads((made.folder / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def contents(path: Path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_run_config_is_the_resolved_config_of_that_many_clients(tmp_path):
    made = federation_folder.init(
        tmp_path / "fed", 4, {"algorithm": "fedprox", "rounds": 7, "seed": 3, "alpha": float("inf")}
    )
    config, settings = read_run_config(run_config(made))
    assert (config.num_clients, config.algorithm, config.rounds, config.seed) == (4, "fedprox", 7, 3)
    assert config.alpha == float("inf")
    assert (dict(config.rules)["mu"], config.lr, config.model) == (0.01, 0.03, "small-cnn")  # defaults
    assert config.target_accuracy is None
    assert (config.update_check, config.checkpoint_every) == ("size", 1)
    assert (settings.out, settings.keys, settings.own_data) == ("run", True, False)
    assert (settings.hop_deadline, settings.wait) == (600, 600)


def test_the_written_app_starts_fedseqs(tmp_path):
    from fedseq.flower import client_app, server_app

    made = federation_folder.init(tmp_path / "fed", 1)
    for side, module in {"client": client_app, "server": server_app}.items():
        assert runpy.run_path(str(made.folder / "app" / f"{side}_app.py"))["app"] is module.app


def test_a_choice_goes_over_the_defaults_of_a_federation(tmp_path):
    made = federation_folder.init(
        tmp_path / "fed", 2, {"update_check": "none", "checkpoint_every": 5}, settings=Settings(hop_deadline=9)
    )
    config, settings = read_run_config(run_config(made))
    assert (config.update_check, config.checkpoint_every, settings.hop_deadline) == ("none", 5, 9)


def test_paths_hold_wherever_the_processes_run(tmp_path):
    made = federation_folder.init(Path("fed"), 2, {"dataset": "npz:my.npz", "data_dir": "files"})
    written = run_config(made)
    assert written["dataset"] == f"npz:{tmp_path}/my.npz"
    assert written["data-dir"] == f"{tmp_path}/files"
    assert written["out"] == "run"


def test_own_data_is_named_by_the_nodes_and_the_server(tmp_path):
    np.savez("test.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    made = federation_folder.init(
        Path("fed"), 2, own_data=True, node_data="npz:part-{node}.npz", server_data="npz:test.npz"
    )
    assert Federation.read(Path("fed")).server_data == f"npz:{tmp_path}/test.npz"
    written = run_config(made)
    assert not {"dataset", "alpha", "partition"} & set(written)
    assert read_run_config(written)[0].dataset == "own"
    assert Federation.read(Path("fed")).node_data == f"npz:{tmp_path}/part-{{node}}.npz"
    assert "join node-K.zip --data npz:/path/of/this/site.npz" in (made.folder / "README.md").read_text()


def test_nodes_that_are_only_at_their_sites_are_not_said_to_start_here(tmp_path, capsys):
    np.savez("test.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    assert main(["federation", "init", "fed", "--nodes", "2", "--own-data", "--server-data", "npz:test.npz"]) == 0
    assert "fedseq federation up fed --server\n" in capsys.readouterr().out
    readme = Path("fed/README.md").read_text()
    assert "On one machine" not in readme  # `up` without --server, and --simulation, refuse
    assert "--simulation" not in readme
    assert f"fedseq federation up {tmp_path}/fed --server\n" in readme


def test_what_init_decided_is_read_back(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 2, host="fl.example.org", port=12345)
    assert Federation.read(tmp_path / "fed") == made
    assert made.tls


@pytest.mark.parametrize("old_mask", [0o000, 0o022])
def test_private_files_are_the_owners_alone(tmp_path, old_mask):
    before = os.umask(old_mask)
    try:
        made = federation_folder.init(tmp_path / "fed", 3)
        registration.make_missing_keys(made, range(3))
    finally:
        os.umask(before)
    private = [made.certificates / "ca.key", made.certificates / "server.key", *(made.node_key(k) for k in range(3))]
    assert [stat.S_IMODE(path.stat().st_mode) for path in private] == [0o600] * 5
    others = [path for path in made.folder.rglob("*") if path.is_file() and path not in private]
    assert not [path for path in others if b"PRIVATE" in path.read_bytes()]


@pytest.mark.parametrize("host", ["fl.example.org", "10.1.2.3", "127.0.0.1", "2001:db8::7"])
def test_the_server_certificate_is_trusted_under_its_names_and_no_other(tmp_path, host):
    made = federation_folder.init(tmp_path / "fed", 1, host=host)
    authority, server = (
        x509.load_pem_x509_certificate((made.certificates / name).read_bytes()) for name in ("ca.crt", "server.crt")
    )
    builder = verification.PolicyBuilder().store(verification.Store([authority]))
    for name in (host, "127.0.0.1", "localhost"):
        builder.build_server_verifier(keys._alternative(name)).verify(server, [])
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("other.example.org")).verify(server, [])
    key = serialization.load_pem_private_key((made.certificates / "server.key").read_bytes(), None)
    assert key.public_key() == server.public_key()
    assert server.not_valid_after_utc - datetime.datetime.now(datetime.UTC) < datetime.timedelta(days=826)


def test_openssl_agrees_on_the_chain(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 1)
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_ip", "127.0.0.1", "-CAfile"]
    asked = subprocess.run(
        [*words, str(made.certificates / "ca.crt"), str(made.certificates / "server.crt")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stdout + asked.stderr


def test_another_federations_server_is_not_trusted(tmp_path):
    one, other = (federation_folder.init(tmp_path / name, 1) for name in ("one", "other"))
    authority = x509.load_pem_x509_certificate((one.certificates / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((other.certificates / "server.crt").read_bytes())
    verifier = verification.PolicyBuilder().store(verification.Store([authority]))
    with pytest.raises(verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("localhost")).verify(server, [])


def test_init_makes_no_private_key_of_a_node(tmp_path):
    """It is made where the node runs: here only when `up` starts it here."""
    made = federation_folder.init(tmp_path / "fed", 3)
    private = {file.name for file in made.folder.rglob("*") if file.is_file() and b"PRIVATE" in file.read_bytes()}
    assert private == {"ca.key", "server.key"}


def test_every_node_has_a_key_of_its_own_that_flower_can_read(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 3)
    registration.make_missing_keys(made, range(3))
    private = [serialization.load_ssh_private_key(made.node_key(k).read_bytes(), None) for k in range(3)]
    assert all(isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp384r1" for key in private)
    public = list(read_keys(made.folder / "keys", 3).values())
    assert len(set(public)) == 3
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert public == [key.public_key().public_bytes(*form) for key in private]


def test_insecure_has_no_keys_and_says_so(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 2, insecure=True)
    assert not any((made.folder / name).exists() for name in ("keys", "kits"))
    assert not made.certificates.exists()
    assert run_config(made)["keys"] is False
    readme = (made.folder / "README.md").read_text()
    assert "NOT encrypted" in readme
    assert "On many machines" not in readme


def test_the_readme_gives_a_site_nothing_but_its_kit(tmp_path):
    made = federation_folder.init(tmp_path / "my fed", 2, host="fl.example.org")
    readme = (made.folder / "README.md").read_text()
    assert f"federation up '{made.folder}' --server\n    User=" in readme  # for systemd
    part = readme.split("### 2.")[1].split("### 3.")[0]
    assert "fedseq federation join node-K.zip\n" in part
    assert str(made.folder) not in part
    assert f"fedseq federation register '{made.folder}' node-K.pub" in readme
    assert "--insecure" not in readme


def test_nothing_is_overwritten(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 2)
    before = contents(made.folder)
    with pytest.raises(FedSeqError, match="not empty"):
        federation_folder.init(tmp_path / "fed", 2)
    assert contents(made.folder) == before
    (tmp_path / "empty").mkdir()
    federation_folder.init(tmp_path / "empty", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "0"], "--nodes must be from 1 to 10,000, not 0"),
        (["--nodes", "1" + "0" * 8], "--nodes must be from 1 to 10,000, not 100000000"),
        ([], "required: --nodes"),
        (["--nodes", "2", "--insecure", "--host", "10.0.0.1"], "--insecure is refused for --host 10.0.0.1"),
        (["--nodes", "2", "--insecure", "--host", "0.0.0.0"], "--insecure is refused"),
        (["--nodes", "2", "--insecure", "--host", "fl.example.org"], "--insecure is refused"),
        (["--nodes", "2", "--insecure", "--tls"], "not allowed with"),
        (["--nodes", "2", "--host", "fl.example.org:80"], "without a port"),
        (["--nodes", "2", "--host", "a b"], "without a port"),
        (["--nodes", "2", "--port", "80"], "--port must be"),
        (["--nodes", "2", "--num-clients", "3"], "contradicts --nodes 2"),
        (["--nodes", "2", "--algorithm", "centralized"], "'centralized' trains on all data in one place"),
        (["--nodes", "2", "--algorithm", "fedsek"], "Did you mean 'fedseq'"),
        (["--nodes", "2", "--roundz", "3"], "Did you mean '--rounds'"),
        (["--nodes", "2", "--attack", "nan"], "unknown option '--attack'"),
        (["--nodes", "2", "--server-data", "npz:a.npz"], "Add --own-data"),
        (["--nodes", "2", "--own-data"], "--server-data npz:FILE"),
        (["--nodes", "2", "--own-data", "--server-data", "npz:a", "--node-data", "npz:b"], "{node}"),
        (["--nodes", "2", "--own-data", "--server-data", "npz:nosuch.npz"], "nosuch.npz cannot be read: No such file"),
        (["--nodes", "2", "--own-data", "--server-data", "folder:nosuch"], "/nosuch does not exist"),
        (["--nodes", "2", "--own-data", "--server-data", "parquet:nosuch"], "nosuch"),
        (["--nodes", "2", "--wait", "0"], "--wait takes a number of seconds"),
    ],
)
def test_what_init_refuses(capsys, words, message):
    assert main(["federation", "init", "fed", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("fed").exists()


def test_init_takes_flags_over_a_file_and_code_only_by_name(capsys, tmp_path):
    """Named on the command line, or trusted: as `fedseq run FILE`."""
    assert main(["federation", "init", "plain", "--nodes", "2"]) == 0
    Path("options.yaml").write_text("rounds: 7\nseed: 3\n")
    assert main(["federation", "init", "fed", "--nodes", "2", "--config", "options.yaml", "--seed", "4"]) == 0
    config, _ = read_run_config(run_config(Federation.read(Path("fed"))))
    assert (config.rounds, config.seed) == (7, 4)
    Path("code.yaml").write_text("model: theirs:Net\n")
    words = ["federation", "init", "theirs", "--nodes", "2", "--config", "code.yaml"]
    assert main(words) == 2
    assert "--trust" in capsys.readouterr().err
    assert not Path("theirs").exists()


def test_an_attack_is_refused_with_the_way_to_simulate_it(tmp_path):
    with pytest.raises(FedSeqError, match="fedseq run --attack"):
        federation_folder.init(tmp_path / "fed", 2, {"attack": "nan"})


@pytest.mark.parametrize("action", ["up", "run", "status", "down"])
def test_a_folder_that_is_none(capsys, action):
    assert main(["federation", action, "nowhere"]) == 2
    assert "nowhere is not the folder of a federation" in capsys.readouterr().err


def test_a_damaged_folder_is_told(tmp_path):
    federation_folder.init(tmp_path / "fed", 1)
    (tmp_path / "fed" / "federation.json").write_text("{")
    with pytest.raises(FedSeqError, match="damaged"):
        Federation.read(tmp_path / "fed")


def test_without_the_extra_it_is_told_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setattr("fedseq.cli.federation.NEEDED", ("no_such_package",))
    assert main(["federation", "init", "fed", "--nodes", "2"]) == 2
    assert "pip install '.[flower]'" in capsys.readouterr().err


def test_an_action_is_needed(capsys):
    assert main(["federation"]) == 2
    assert "which action?" in capsys.readouterr().err


def test_changes_for_one_run_are_checked_and_typed(tmp_path):
    made = federation_folder.init(tmp_path / "fed", 2)
    changes = [
        "rounds=5",
        "target-accuracy=0.9",
        "algorithm=fedprox",
        "wait=30",
        "update-check=none",
        "max_grad_norm=null",
    ]
    assert app_run.overrides(made, changes) == {
        "rounds": 5, "target-accuracy": 0.9, "algorithm": "fedprox", "wait": 30, "update-check": "none",
        "max-grad-norm": None,
    }  # fmt: skip
    for change, message in {
        "smoothed.keep=1": 'add the line "smoothed.keep" = "null" at the end of .*pyproject.toml',
        "rounds": "KEY=VALUE", "roundz=5": "Did you mean 'rounds'", "rounds=few": "whole number", "wait=x": "a number",
        'out="x': "quote", "out=/a/b": "inside the federation's", "out=..": "inside the federation's",
    }.items():  # fmt: skip
        with pytest.raises(FedSeqError, match=message):
            app_run.overrides(made, [change])


RULE = "def smoothed(keep=0.5, parts=(), share=1.0):\n    raise NotImplementedError\n"


def test_hyper_parameters_of_ones_own_rule_are_in_the_run_config_and_change_for_a_run(tmp_path):
    """Out of a file, by --rule, and with --set also those that were left to their defaults."""
    Path("rule_of_a_federation.py").write_text(RULE)
    Path("own.yaml").write_text(
        "algorithm: fedseq+rule_of_a_federation:smoothed\nsmoothed.keep: 0.9\nsmoothed.parts: [a, 1.0e-5]\n"
    )
    words = ["--nodes", "2", "--config", "own.yaml", "--trust"]
    assert main(["federation", "init", "fed", *words]) == 0
    made = Federation.read(Path("fed"))
    written = run_config(made)
    assert (written["smoothed.keep"], written["smoothed.share"]) == (0.9, "null")
    assert isinstance(written["smoothed.parts"], str)  # Flower takes no lists
    own = {"smoothed.keep": 0.9, "smoothed.parts": ("a", 1e-5)}
    assert {name: value for name, value in read_run_config(written)[0].rules if "." in name} == own
    changed = app_run.overrides(made, ["smoothed.keep=0.3", "smoothed.share=0.25", "smoothed.parts=[1, 2]"])
    assert changed == {"smoothed.keep": 0.3, "smoothed.share": 0.25, "smoothed.parts": (1, 2)}
    # What Flower makes of the words, and what the server reads then.
    fused = fuse_dicts(flatten_dict(written), parse_config_args(toml_words(changed)))
    assert {name: value for name, value in read_run_config(fused)[0].rules if "." in name} == changed
    assert main(["federation", "init", "other", *words, "--rule", "smoothed.keep=0.2"]) == 0
    assert run_config(Federation.read(Path("other")))["smoothed.keep"] == 0.2


def test_a_rule_that_is_put_beside_the_app_later_needs_no_module_at_init(tmp_path):
    made = federation_folder.init(
        tmp_path / "fed", 2, {"algorithm": "fedseq+rule_of_later:smoothed", "smoothed.keep": 0.9}
    )
    path = made.folder / "app" / "pyproject.toml"
    assert app_run.overrides(made, ["smoothed.keep=0.3"]) == {"smoothed.keep": 0.3}
    path.write_text(path.read_text() + "smoothed.share = 1.0\n")  # by hand, which TOML reads as a table
    assert app_run.overrides(made, ["smoothed.share=0.5"]) == {"smoothed.share": 0.5}
    with pytest.raises(FedSeqError, match="has no rule smoothed"):
        app_run.overrides(made, ["algorithm=fedavg", "smoothed.keep=0.3"])
