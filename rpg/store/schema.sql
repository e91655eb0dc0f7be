-- The tables of the results database; a comment is the meaning of its column (rpg/store/schema.py reads both).
-- Measurements are further DOUBLE columns of `metrics`; rpg.metrics describes those of the trainers.

CREATE TABLE meta (
    schema_version INTEGER,  -- version of these tables
    built DOUBLE,  -- when this version was built (unix seconds)
    fingerprint VARCHAR  -- digest of the names and contents of the files that belong to no run
);

CREATE TABLE file_records (
    sweep VARCHAR,  -- sweep of the run; empty for files that belong to no run
    run VARCHAR,  -- run of the file; empty for sweep files, notes, audits and evaluations by hand
    file VARCHAR,  -- its name within the run's folder, or within the data folder
    bytes BIGINT,  -- its size when the database was built
    modified BIGINT,  -- when it was written (unix nanoseconds)
    sha256 VARCHAR  -- digest of its content
);

CREATE TABLE sweeps (
    sweep VARCHAR,  -- name of the sweep, its folder under runs/
    created DOUBLE,  -- when it was started (unix seconds)
    baseline VARCHAR,  -- variant with which the others are compared, or null
    source VARCHAR,  -- the sweep's YAML
    benchmarks VARCHAR[],  -- benchmarks its checkpoints are evaluated on
    runs INTEGER,  -- runs of its newest file, started or not
    superseded INTEGER,  -- older runs of the same name that are still on disk
    description VARCHAR,  -- what its file asks
    labels JSON  -- what its file calls parts of its variants: {part of a variant's name: label}
);

CREATE TABLE runs (
    sweep VARCHAR,  -- sweep of the run
    run VARCHAR,  -- folder name of the run; (sweep, run) identifies it everywhere
    run_id VARCHAR,  -- hash of its resolved settings and data
    variant VARCHAR,  -- what is compared: the settings without the seed; null until the run has started
    superseded VARCHAR,  -- null for the runs of the sweep's newest file; otherwise the settings in which this older run differs from them (no view averages it, and its variant is distinct)
    planned_variant VARCHAR,  -- variant under which it was started; differs from `variant` only if superseded
    algorithm VARCHAR,  -- catalogue name of the algorithm
    display_name VARCHAR,  -- name of the algorithm as in papers
    seed BIGINT,  -- seed; runs of two variants with the same seed share data order and warm start
    axes JSON,  -- the sweep's axes and this run's values
    identity JSON,  -- what run_id is the hash of: the training settings and the digest of the data
    state VARCHAR,  -- pending, running, done, failed, interrupted or unreadable, when the database was built
    error VARCHAR,  -- one line, when it failed
    log VARCHAR,  -- log file of the failure
    steps BIGINT,  -- number of training steps of the finished run
    step BIGINT,  -- last step in its metrics
    benchmarks VARCHAR[],  -- benchmarks of the run
    created DOUBLE,  -- when the manifest was written (unix seconds)
    finished DOUBLE,  -- when it was done (unix seconds)
    seconds DOUBLE,  -- seconds of work until it was done, over all attempts
    attempts INTEGER,  -- attempts that wrote metrics
    code VARCHAR,  -- digest of the source files that its newest attempt imported; null if not recorded
    git_revision VARCHAR,  -- revision of the checkout, with `+` if files were edited
    versions JSON,  -- versions of the libraries
    machine JSON,  -- the machine
    spec JSON,  -- the resolved settings
    imported JSON,  -- origin of a run that was trained elsewhere (rpg import); null for all others
    ended JSON,  -- where and why it ended before its last planned step (training.until): step, reason, value; null if it did not
    fingerprint VARCHAR  -- digest of the run's state and of the names and contents of its files
);

CREATE TABLE metrics (
    sweep VARCHAR,  -- sweep of the run
    run VARCHAR,  -- run
    attempt INTEGER,  -- attempt that wrote this step (the highest one that did)
    step BIGINT,  -- training step: one rollout and its updates
    optimizer_step BIGINT,  -- optimizer steps taken so far
    time DOUBLE  -- when the step ended (unix seconds)
);

CREATE TABLE attempts (
    sweep VARCHAR,  -- sweep of the run
    run VARCHAR,  -- run
    attempt INTEGER,  -- attempt with valid steps
    code VARCHAR,  -- digest of the source files that it imported; null if not recorded
    git_revision VARCHAR,  -- revision of the checkout, with `+` if files were edited
    versions JSON,  -- versions of the packages on which its numbers depend
    machine JSON,  -- the machine it ran on
    begun DOUBLE  -- when its first step ended (unix seconds)
);

CREATE TABLE sources (
    code VARCHAR,  -- digest of all files
    file VARCHAR,  -- source file, relative to the folder of the package `rpg`
    digest VARCHAR  -- digest of its text
);

CREATE TABLE samples (
    sweep VARCHAR,  -- sweep of the run; empty for an evaluation by hand (rpg evaluate)
    run VARCHAR,  -- run; by hand: the folder of the results under evaluations/
    benchmark VARCHAR,  -- benchmark
    step BIGINT,  -- training step of the checkpoint; 0 by hand
    problem_id VARCHAR,  -- problem
    cluster VARCHAR,  -- cluster of the problem (a template, a source, a year); null if it stands for itself
    sample INTEGER,  -- number of the sample, from 0
    correct BOOLEAN,  -- whether the verifier accepted the answer
    extracted VARCHAR,  -- answer extracted from the response, null if there was none
    reason VARCHAR,  -- reason for the verdict
    tokens INTEGER,  -- tokens of the response
    truncated BOOLEAN,  -- whether the response hit the length limit
    reward DOUBLE,  -- total reward; null if the reward is the verifier's verdict alone
    unread VARCHAR,  -- why the answer could not be read; null if it was read, or there is none
    second_reading BOOLEAN  -- a second reader's verdict on an answer that could not be read; null if it cannot read it either
);

CREATE TABLE votes (
    extracted VARCHAR,  -- extracted answer, as written
    vote VARCHAR  -- what it counts as in maj@k: the same for all ways to write a number or text
);

CREATE TABLE evals (
    sweep VARCHAR,  -- sweep of the run; empty for an evaluation by hand (rpg evaluate)
    run VARCHAR,  -- run; by hand: the folder of the results under evaluations/
    benchmark VARCHAR,  -- benchmark
    step BIGINT,  -- training step of the checkpoint; 0 by hand
    problems INTEGER,  -- number of evaluated problems
    k INTEGER,  -- samples per problem (the minimum over problems)
    accuracy DOUBLE,  -- mean@k: mean over problems of the share of correct samples
    standard_error DOUBLE,  -- standard error of mean@k over problems (samples of a problem are not independent)
    pass_at_k DOUBLE,  -- pass@k: probability that at least one of k samples is correct, unbiased, mean over problems
    maj_at_k DOUBLE,  -- maj@k: share of problems whose most frequent answer (`votes`) is correct, ties split
    tokens DOUBLE,  -- mean tokens per response
    truncated DOUBLE,  -- share of responses that hit the length limit
    unread DOUBLE,  -- share of answers that could not be read; they count as wrong (docs/grading.md)
    second_reading DOUBLE,  -- mean@k if answers that only the second reader could read counted; null if there are none
    reward DOUBLE,  -- mean over problems of the samples' reward; null if that is the verifier's verdict alone
    rules VARCHAR,  -- rules by which answers were graded (docs/grading.md); null for old files
    origin VARCHAR,  -- sweep, joined (rpg evaluate --join), imported (a score without samples) or hand (rpg evaluate)
    model VARCHAR,  -- what was evaluated: the checkpoint of a run, or the model as named, with its commit on the hub
    engine VARCHAR,  -- what produced the responses: local, huggingface or vllm; null if not recorded
    draws VARCHAR  -- folder of the responses under samples/; null for old files
);

CREATE TABLE marks (
    sweep VARCHAR,  -- sweep
    run VARCHAR,  -- run, or null for what was added to the sweep
    tags VARCHAR[],  -- tags (rpg tag); `hidden` leaves it out of the dashboard's lists
    notes VARCHAR,  -- notes, one per line (rpg note)
    label VARCHAR  -- what it is called in the dashboard (rpg tag --label); empty for its name
);

CREATE TABLE drift (
    sweep VARCHAR,  -- sweep of the run
    run VARCHAR,  -- run
    benchmark VARCHAR,  -- benchmark to which the responses belong
    step BIGINT,  -- training step of the checkpoint
    direction VARCHAR,  -- policy_to_initial: KL(policy || initial model); initial_to_policy: the reverse
    estimator VARCHAR,  -- how it was measured. whole distributions: the sum over the vocabulary at every prefix of the responses
    per_response DOUBLE,  -- KL between whole responses in nats: mean over responses sampled from the first of the two
    per_response_se DOUBLE,  -- its standard error: of problems and of samples
    per_token DOUBLE,  -- the same per token, in nats
    per_token_se DOUBLE,  -- its standard error: of problems and of samples
    responses BIGINT,  -- number of responses measured
    problems BIGINT  -- number of problems of these responses
);

CREATE TABLE audits (
    name VARCHAR,  -- file name without .json under audits/
    report JSON  -- the audit's report
);

CREATE TABLE warnings (
    sweep VARCHAR,  -- sweep
    run VARCHAR,  -- run, or null
    message VARCHAR  -- what could not be read, on one line
);
