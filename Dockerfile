# An image for GPUs, of this checkout: docker build -t rpg-lab . && docker run --gpus all --shm-size 16g -v lab:/data rpg-lab doctor --backend verl
# CUDA 13.0 is what the wheels of torch 2.11.0 and vLLM 0.24.0 are built with; `devel`, because vLLM and Triton compile.
# A tag can be moved. For an image that can be built again, give the digest, too:
#   docker build --build-arg BASE=$(docker buildx imagetools inspect --format '{{.Name}}@{{.Manifest.Digest}}' nvidia/cuda:13.0.1-devel-ubuntu24.04) .
ARG BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04
FROM ${BASE}

# KubeRay's probes of a node's health call wget, unless it is told of a Ray from 2.53 on.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-dev python3-venv gcc g++ git wget \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:${PATH} VIRTUAL_ENV=/opt/venv RPG_HOME=/data

WORKDIR /opt/rpg-lab
# The releases of constraints-gpu.txt, each file by its hash (`make lock`).
COPY requirements-gpu.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements-gpu.lock
COPY pyproject.toml constraints.txt constraints-gpu.txt README.md LICENSE ./
COPY rpg rpg
COPY flows flows
COPY dashboard dashboard
COPY configs configs
COPY benchmarks benchmarks
RUN pip install --no-cache-dir --no-deps .

# Flash attention is a wheel for exactly this Python, torch and CUDA, or an hour of compiling: --build-arg FLASH_ATTN=<its address>,
# or FLASH_ATTN=flash-attn==2.8.3 to compile. Without it attention is torch's, and padding is computed, too.
ARG FLASH_ATTN=
RUN if [ -n "${FLASH_ATTN}" ]; then pip install --no-cache-dir wheel && pip install --no-cache-dir --no-deps --no-build-isolation "${FLASH_ATTN}"; fi

# Not root: what a run's code may do, it does as this user, whose number a mounted folder has to allow.
RUN useradd --create-home --uid 10001 lab && mkdir /data && chown lab:lab /data
USER lab

VOLUME /data
ENTRYPOINT ["rpg"]
