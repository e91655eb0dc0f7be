"""Studies: variants tuned with equal effort, what will be compared written down, then compared on
seeds never tuned on.

    <home>/studies/<name>/study.json                        the file as it was read last
                          batches/<variant>.<digest>-000.json   proposals, written before they are trained
                          registered.json, registered-1.json    what is compared, and former records

The results are those of runs: of the sweeps <name>.tuning and <name>.<digest of the record>.
"""
