"""The three presets of DART on one cluster: what the paper's curation costs in efficiency, with a surrogate policy.

python -m experiments.presets            three seeds, 24 simulated hours each: about two minutes on two cores
python -m experiments.presets --quick    the same keys in half a minute
"""

from experiments.arms import arm_study

STUDY = arm_study("presets")

if __name__ == "__main__":
    STUDY.run()
