"""The README of a federation's folder: commands to paste, with its paths, names and numbers filled in."""

import shlex

from fedseq.flower.deployment import commands
from fedseq.flower.deployment.federation import NAME, Federation


def text(federation: Federation) -> str:
    many = _many_machines(federation) if federation.tls else ""
    return "\n".join([_head(federation), _one_machine(federation), many, _data(federation), _security(federation)])


def _head(federation: Federation) -> str:
    trust = "encrypted, and each node has a key" if federation.tls else "NOT encrypted, and anybody is let in"
    return f"""# A federation of {federation.nodes} nodes

Made by `fedseq federation init`. Nodes reach the SuperLink at {_address(federation)}.
The connection is {trust}. The options of a run are in `app/pyproject.toml`.
"""


def _one_machine(federation: Federation) -> str:
    if federation.only_at_sites:
        return "The nodes have data of their own, at their sites, so that `up` starts the server alone.\n"
    folder = shlex.quote(str(federation.folder))
    return f"""## On one machine

    fedseq federation up {folder}
    fedseq federation run {folder}
    fedseq federation status {folder}
    fedseq federation stop {folder}
    fedseq federation down {folder}

`run --set rounds=5` changes an option for one run; `stop` stops a run, which `run` continues.
`up` again starts what is missing, such as a node that was killed.
What the server learned is in `run/`, which `fedseq watch` and `fedseq report` read. The processes' logs are in `logs/`.
{"" if federation.own_data else _simulation(folder)}"""


def _simulation(folder: str) -> str:
    return f"""
The same app in Flower's simulation, without a SuperLink and nodes:

    fedseq federation run {folder} --simulation
"""


def _many_machines(federation: Federation) -> str:
    folder = shlex.quote(str(federation.folder))
    own = " --data npz:/path/of/this/site.npz" if federation.own_data else ""
    superlink = commands.superlink(federation, "0.0.0.0", federation.port, federation.database)
    quiet = " ".join(f"{name}={value}" for name, value in commands.QUIET.items())
    return f"""## On many machines

Every machine needs the same version of FedSeq: `pip install '.[flower]'` in its source folder.

### 1. The SuperLink, on the server's machine

    fedseq federation up {folder} --server

It keeps this folder. Other machines reach it at port {federation.port}; Flower's helpers reach it on loopback.

### 2. The sites

Site K gets `kits/node-K.zip` and nothing else. There is no secret in it, but a site trusts the authority that it names:
send it over a channel that you both trust. At the site:

    fedseq federation join node-K.zip{own}

This makes the site's key, says what to send back, and keeps the site's node connected until Ctrl-C or SIGTERM.
Everything of the site is in the folder `node-K` that it makes, which has to survive a restart of the machine. So has
`~/.local/state/fedseq`, by which `join` knows the folder again.

### 3. The sites' keys, once, on the server's machine

    fedseq federation register {folder} node-K.pub

`node-K.pub` is what the site sent back. Compare the fingerprint with the one that the site sees, by telephone. Until
then the site is not let in, and tries again by itself.

### 4. Runs, started on the server's machine

    fedseq federation run {folder}
    fedseq federation status {folder}

What the server learned is in `run/`, which `fedseq report`, `predict` and `export` read. `fedseq federation stop` stops
a run, which `run` continues; `down` stops the SuperLink. `run` is
`flwr run {federation.folder / "app"} {NAME} --stream` with `FLWR_HOME={federation.folder / "flwr"}`.

### Under a service manager

`up --server` starts the SuperLink in the background. In the foreground, after `fedseq federation down`, it is

{_indented(f"export {quiet}")}
{_indented(f"export FLWR_HOME={shlex.quote(str(federation.folder / 'superlink'))}")}
{_indented(commands.paste(superlink))}
"""


def _data(federation: Federation) -> str:
    if federation.own_data:
        return """## The nodes' data

Each node has data of its own, and its site says where: `--data npz:/path/file.npz`, `folder:/path` or
`parquet:/path/file.parquet`. Examples never leave the node. The server evaluates on `server-data` of the run-config.
"""
    return """## The nodes' data

Node K takes the K-th part of the data set that the run-config names, and every machine has to have it. For data of
their own: `fedseq federation init DIR --nodes N --own-data --server-data npz:FILE`.
"""


def _security(federation: Federation) -> str:
    if not federation.tls:
        return """## Who can do what

Everybody with an account on this machine can join, read what is sent, and start runs. Other machines reach nothing.
"""
    return """## Who can do what

- A node without TLS, one that trusts another authority and one whose key is not registered are refused.
- Other machines reach only what nodes need. Registering keys and starting runs are left to this machine, because Flower
  asks nobody who they are: everybody with an account here can do both, and a run is code that server and nodes execute.
- This is the rule of `python -m fedseq.flower.deployment.superlink`. Plain `flower-superlink` does not have it: there,
  close the paths /v1/control and /v1/runtime to other machines by other means.
- `certificates/ca.key` can make servers that the nodes trust. Nothing here needs it any more: put it away.
"""


def _address(federation: Federation) -> str:
    host = f"[{federation.host}]" if ":" in federation.host else federation.host
    return f"{host}:{federation.port}"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())
