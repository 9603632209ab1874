# SPDX-License-Identifier: Apache-2.0
"""NeMo Gym's sandbox protocol on top of our providers."""

from .gym import NemoGymMissing, load_gym
from .provider import GymProvider
from .provider_settings import GymProviderSettings, Probe
from .specs import SpecDefaults, SpecReader
from .workshop import Workshop

__all__ = [
    "GymProvider",
    "GymProviderSettings",
    "NemoGymMissing",
    "Probe",
    "SpecDefaults",
    "SpecReader",
    "Workshop",
    "load_gym",
]
