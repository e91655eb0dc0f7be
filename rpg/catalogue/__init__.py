"""The catalogue: what each algorithm is, as data.

In: entries.yaml and divergences.yaml, and overrides by name. Out: frozen `Algorithm` objects whose
parts are checked against each other. No torch: `rpg.losses` computes what these describe. What
other rooms need of its vocabulary is importable from here. Read first: entry.py.
"""

from rpg.catalogue.components import GAE as GAE
from rpg.catalogue.components import KL as KL
from rpg.catalogue.components import Advantage as Advantage
from rpg.catalogue.components import AdvantageKL as AdvantageKL
from rpg.catalogue.components import Clip as Clip
from rpg.catalogue.components import DistributionKL as DistributionKL
from rpg.catalogue.components import EMAReference as EMAReference
from rpg.catalogue.components import GammaGate as GammaGate
from rpg.catalogue.components import Gate as Gate
from rpg.catalogue.components import LossKL as LossKL
from rpg.catalogue.components import Mask as Mask
from rpg.catalogue.components import ModelReference as ModelReference
from rpg.catalogue.components import ObjectiveKL as ObjectiveKL
from rpg.catalogue.components import Overlong as Overlong
from rpg.catalogue.components import QuadraticGate as QuadraticGate
from rpg.catalogue.components import Reference as Reference
from rpg.catalogue.components import RejectedSamples as RejectedSamples
from rpg.catalogue.components import RewardKL as RewardKL
from rpg.catalogue.components import RolloutCorrection as RolloutCorrection
from rpg.catalogue.components import SecondMoment as SecondMoment
from rpg.catalogue.components import TowardsTarget as TowardsTarget
from rpg.catalogue.components import TruncatedWeights as TruncatedWeights
from rpg.catalogue.divergences import DIVERGENCES as DIVERGENCES
from rpg.catalogue.divergences import Divergence as Divergence
from rpg.catalogue.entry import Algorithm as Algorithm
from rpg.catalogue.entry import AlgorithmError as AlgorithmError
from rpg.catalogue.entry import override as override
from rpg.catalogue.lookup import algorithm as algorithm
from rpg.catalogue.lookup import algorithms as algorithms
