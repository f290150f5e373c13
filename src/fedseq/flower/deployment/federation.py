"""A federation as its folder describes it: what `init` decided, and where everything is.

app/            what `flwr run` sends to the server and to every node: two adapters and the run-config, no data
certificates/   the authority's and the SuperLink's
keys/           the public key of each node that was registered; the private half too, of nodes that run here
kits/           what each site gets, to join with
nodes/K/        what Flower and FedSeq keep for node K
superlink/      what the SuperLink keeps: registered keys and runs
flwr/           the `flwr` command's settings: where this SuperLink is
run/            the server's run folder, as `fedseq run` writes it
"""

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_json

FORMAT = 1
NAME = "federation"  # of the SuperLink in flwr/config.toml
GONE = "unregistered"  # what the SuperLink says of a key that was taken back, for good
DEFAULT_PORT = 8710
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Federation:
    """What `init` decided; the other commands read it back."""

    folder: Path
    nodes: int
    host: str = LOOPBACK  # under which nodes reach the SuperLink
    port: int = DEFAULT_PORT
    tls: bool = True
    own_data: bool = False
    node_data: str = ""  # where node K's own data is on this machine, with {node} for K

    @property
    def only_at_sites(self) -> bool:
        """Whether nothing here says where the nodes' data is, so that they can be started at their sites alone."""
        return self.own_data and not self.node_data

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def database(self) -> Path:
        """Registered keys and runs outlive a restart of the SuperLink."""
        return self.folder / "superlink" / "state.db"

    def node_key(self, node: int) -> Path:
        return self.folder / "keys" / f"node-{node}"

    def public_key(self, node: int) -> Path:
        return self.folder / "keys" / f"node-{node}.pub"

    def kit(self, node: int) -> Path:
        return self.folder / "kits" / f"node-{node}.zip"

    def node_home(self, node: int) -> Path:
        return self.folder / "nodes" / str(node)

    def write(self) -> None:
        facts = {name: value for name, value in vars(self).items() if name != "folder"}
        write_json(self.folder / "federation.json", {"format": FORMAT, **facts})

    @staticmethod
    def read(folder: Path) -> "Federation":
        path = folder.absolute() / "federation.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts.pop("format") != FORMAT:
                raise FedSeqError(f"{path} was written by another version of fedseq. Make the folder anew with init.")
            return Federation(folder=folder.absolute(), **facts)
        except FileNotFoundError:
            raise FedSeqError(
                f"{folder} is not the folder of a federation. Make one with: fedseq federation init {folder} --nodes N"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FedSeqError(f"{path} is damaged ({error}). Make the folder anew with init.") from None


def is_this_machine(host: str) -> bool:
    """Whether nobody else can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
