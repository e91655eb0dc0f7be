"""Studies: variants tuned with equal effort, registered, then compared on seeds never tuned on.

In: a study's file, and results of its sweeps. Out: proposals to train, a registered plan whose
digest precedes its results, and a report. The results are those of runs: of the sweeps
<name>.tuning and <name>.<digest of the record>. Read first: spec.py, then registration.py.

    <home>/studies/<name>/study.json                        the file as it was read last
                          batches/<variant>.<digest>-000.json   proposals, before they are trained
                          registered.json, registered-1.json    what is compared; former records
"""
