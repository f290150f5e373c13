"""The README of a federation's folder: commands to paste, with its paths, names and numbers filled in."""

import shlex
from pathlib import Path

from fedseq.flower import commands
from fedseq.flower.folder import NAME, Federation


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
    folder = shlex.quote(str(federation.folder))
    return f"""## On one machine

    fedseq federation up {folder}
    fedseq federation run {folder}
    fedseq federation status {folder}
    fedseq federation down {folder}

`run --set rounds=5` changes an option for one run. `up` again starts what is missing, such as a node that was killed.
What the server learned is in `run/`, which `fedseq watch` and `fedseq report` read. The processes' logs are in `logs/`.

The same app in Flower's simulation, without a SuperLink and nodes:

    fedseq federation run {folder} --simulation
"""


def _many_machines(federation: Federation) -> str:
    folder = federation.folder
    superlink = commands.superlink(federation, "0.0.0.0", federation.port, database(federation))
    return f"""## On many machines

Every machine needs `pip install 'fedseq[flower]'`, and in each shell used below:

{_indented("export " + " ".join(f"{name}={value}" for name, value in commands.QUIET.items()))}

### 1. The SuperLink, on the server's machine

It keeps this folder. Other machines reach it at port {federation.port}; Flower's helpers reach it on loopback.

{_indented(_exported(folder / "superlink"))}
{_indented(commands.paste(superlink))}

### 2. The nodes' keys, once, on the same machine

{_indented(_exported(folder / "flwr"))}
    for K in $(seq 0 {federation.nodes - 1}); do
        flwr supernode register {shlex.quote(str(folder / "keys"))}/node-$K.pub {NAME}
    done

### 3. The nodes, each on its machine

Node K gets two files and nothing else: `certificates/ca.crt` and its own key `keys/node-K` (mode 0600). Remove the key
here when the node has it: the server needs only `node-K.pub`. In a folder of the node, with its number:

    K=0
    export FLWR_HOME="$PWD/flwr"
    flower-supernode --superlink {_address(federation)} \\
        --root-certificates ca.crt --auth-supernode-private-key node-$K \\
        --host 127.0.0.1 --port {federation.port + 1} \\
        --node-config "{_node_config(federation)}"

Another node on the same machine takes another folder and `--port`. `memory` has to survive a restart of the node. A
node that is not let in because of its key says so and ends; one that can't reach the SuperLink, or does not trust it,
tries again and again without a word. A node that was killed is held for alive for a minute and refused as its own
double: start it again until it is let in (under systemd: `Restart=always`).

### 4. Runs, started on the server's machine

    fedseq federation run {shlex.quote(str(folder))}

which is `flwr run {folder / "app"} {NAME} --stream` with the FLWR_HOME of step 2.
"""


def _node_config(federation: Federation) -> str:
    own = ' data=\\"npz:/path/of/this/node.npz\\"' if federation.own_data else ""
    return f'partition-id=$K num-partitions={federation.nodes} memory-dir=\\"$PWD/memory\\"{own}'


def _data(federation: Federation) -> str:
    if federation.own_data:
        return """## The nodes' data

Each node has data of its own. Its node config says where: `data="npz:/path/file.npz"`, `data="folder:/path"` or
`data="parquet:/path/file.parquet"`. Examples never leave the node. The server evaluates on `server-data` of the
run-config.
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
- This is the rule of `python -m fedseq.flower.superlink`. Plain `flower-superlink` does not have it: there, close the
  paths /v1/control and /v1/runtime to other machines by other means.
- `certificates/ca.key` can make servers that the nodes trust. Nothing here needs it any more: put it away.
"""


def database(federation: Federation) -> Path:
    """Registered keys and runs outlive a restart of the SuperLink."""
    return federation.folder / "superlink" / "state.db"


def _address(federation: Federation) -> str:
    host = f"[{federation.host}]" if ":" in federation.host else federation.host
    return f"{host}:{federation.port}"


def _exported(home: Path) -> str:
    return f"export FLWR_HOME={shlex.quote(str(home))}"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())
