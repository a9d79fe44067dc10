# Sourced by kit.sh in the kit's folder: sets paths, including the library path.
kit=$PWD build=$PWD/build protrain=$PWD/build/tools/protrain
results=${OUT:-$kit/results} scratch=${TMPDIR:-/tmp}/protrain-kit-$(id -u)
mkdir -p "$results" "$scratch"
# The kit has no cuBLASLt. It uses that of PyTorch's packages or of a CUDA toolkit on this machine.
blas=$(python3 - <<'P'
import glob, importlib.util, site, sys
folders = [f"{place}/nvidia/*/lib" for place in {*site.getsitepackages(), sys.prefix + "/lib/python3/dist-packages"}]
found = importlib.util.find_spec("nvidia")
folders += [f"{place}/*/lib" for place in (found.submodule_search_locations if found else [])]
for folder in [*folders, "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/x86_64-linux-gnu"]:
    for hit in sorted(glob.glob(folder + "/libcublasLt.so.1[3-9]")):
        print(hit.rsplit("/", 1)[0])
        raise SystemExit
P
)
# The kit's libraries come last, so the machine's own libraries are preferred.
export LD_LIBRARY_PATH=$build${blas:+:$blas}:/usr/lib/x86_64-linux-gnu:$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export XDG_CACHE_HOME=$scratch/cache PROTRAIN_BENCH_RESULTS=$results PYTHONUNBUFFERED=1
export PROTRAIN_KIT_SCRATCH=$scratch PROTRAIN_KIT_BUILD=$build
