#!/bin/sh
# test_usm_info.sh USM_INFO CC: usm-info as users and programs meet it.
#
# Runs over the runtime in USM_TEST_RUNTIME (tests/with-runtime.sh; default: host).  What does not
# depend on the runtime runs on the host only.  CC builds what is to be diagnosed: fake_backend.c
# and OpenCL drivers that are broken in several ways.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
tool=$1
cc=$2
runtime=${USM_TEST_RUNTIME:-host}
if [ "$runtime" = host ] && [ -z "${USM_DEVICE_SELECTOR:-}" ]; then
    export USM_DEVICE_SELECTOR='host:*'
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/usm-info-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
passed=0 failed=0 skipped=0

pass()
{
    passed=$((passed + 1))
}

fail()
{
    failed=$((failed + 1))
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" "$work/err" 2>/dev/null | head -n 40
}

skip()
{
    skipped=$((skipped + 1))
    echo "skipped: $1"
}

# run STATUS COMMAND...: runs it; its output is in $work/out, $work/err.
run()
{
    wanted=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    if [ $got -ne "$wanted" ]; then
        fail "$* exits $wanted (it was $got)"
        return 1
    fi
    pass
}

# says TEXT / not_says TEXT: whether the last output has it, line breaks and indentation aside.
flat()
{
    cat "$work/out" "$work/err" | tr -s ' \n' '  '
}
says()
{
    if flat | grep -qF -- "$1"; then pass; else fail "the output says: $1"; fi
}
not_says()
{
    if flat | grep -qF -- "$1"; then fail "the output does not say: $1"; else pass; fi
}

# json EXPRESSION: the last output is JSON, d, for which the Python expression is true.
json()
{
    if [ -z "$python" ]; then
        skip "no python3 to look at JSON"
    elif ! "$python" -m json.tool "$work/out" >/dev/null 2>"$work/err"; then
        fail "the output is JSON"
    elif ! "$python" -c "import json, sys
d = json.load(open(sys.argv[1], encoding='utf-8'))
sys.exit(0 if ($1) else 1)" "$work/out"; then
        fail "of the JSON: $1"
    else
        pass
    fi
}
python=$(command -v /usr/bin/python3 || command -v python3)

# build FILE ARGUMENT...: a shared library.
build()
{
    "$cc" -std=c11 -D_GNU_SOURCE -fPIC -shared -o "$@" || exit 1
}

# The system's drivers, or their absence, play no part: on the host OpenCL has one that is well and
# has no device.
if [ "$runtime" = host ]; then
    mkdir "$work/healthy"
    cat >"$work/none.c" <<'END'
#include <string.h>
int none(unsigned cap, void **list, unsigned *n)
{
    (void)cap;
    (void)list;
    if (n)
        *n = 0;
    return -1001;
}
void *clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)none : 0;
}
END
    build "$work/libnone.so" "$work/none.c"
    echo "$work/libnone.so" >"$work/healthy/none.icd"
    export OCL_ICD_VENDORS="$work/healthy"
fi

# --- on every runtime -----------------------------------------------------------------------------

case $runtime in
host) backend=host moves='d["devices"][0]["moves_data"] == "yes"' ;;
ze-*) backend=level_zero moves='d["devices"][0]["moves_data"] == "yes"' ;;
neo-ze-*)
    backend=level_zero moves='all(x["moves_data"] in ("no", "crashes") for x in d["devices"])'
    ;;
neo-*) backend=opencl moves='all(x["moves_data"] in ("no", "crashes") for x in d["devices"])' ;;
*) backend=opencl moves='d["devices"][0]["moves_data"] == "yes"' ;;
esac

run 0 "$tool" && says "libusm " && says Backends && says Settings && says "$backend:0" &&
    says moves_data
run 0 "$tool" --list && says "$backend:0" && not_says Settings
run 0 "$tool" --json
json 'd["schema"] == 1 and d["error"] is None and len(d["devices"]) > 0'
json 'd["devices"][0]["selector"] == "'$backend':0" and d["devices"][0]["index"] == 0'
json '[b for b in d["backends"] if b["name"] == "'$backend'"][0]["state"] == "loaded"'
json 'all(x["aspects"] and x["memory"]["total"] > 0 for x in d["devices"])'
json "$moves"
run 0 "$tool" --list --json
json 'd["devices"][0]["selector"] == "'$backend':0"'

printf '__kernel void k(__global int *x) { x[get_global_id(0)] = N; }\n' >"$work/good.cl"
printf '__kernel void k(__global int *x) { x[0] = undeclared_name; }\n' >"$work/bad.cl"
case $runtime in
host) # takes native functions only
    run 1 "$tool" --program "$work/good.cl" && says "opencl_c (" && says "native"
    run 1 "$tool" --program "$work/good.cl" --json
    json 'd["devices"][0]["runs"] is False and d["devices"][0]["status"] == "USM_E_NO_IMAGE"'
    ;;
ze-* | neo-ze-*) # Level Zero compiles no text
    run 1 "$tool" --program "$work/good.cl" && says "opencl_c (" && says "takes spirv"
    run 1 "$tool" --program "$work/good.cl" --json
    json 'd["devices"][0]["runs"] is False and d["devices"][0]["status"] == "USM_E_NO_IMAGE"'
    ;;
*)
    run 0 "$tool" --program "$work/good.cl" --options -DN=4 && says "$backend:0 opencl_c"
    run 0 "$tool" --program "$work/good.cl" --options -DN=4 --json
    json 'd["devices"][0]["runs"] and d["devices"][0]["image"] == "opencl_c"'
    run 1 "$tool" --program "$work/bad.cl" && says "$backend:0 none" && says undeclared_name
    run 1 "$tool" --program "$work/bad.cl" --json
    json 'd["devices"][0]["status"] == "USM_E_BUILD"'
    json '"undeclared_name" in d["devices"][0]["log"]'
    ;;
esac
case $runtime in
neo-*) run 1 "$tool" --doctor && says "does not work" ;;
*) run 0 "$tool" --doctor && says "$backend:0 moves data" && says "Nothing is broken." ;;
esac

finish()
{
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}
# PoCL aborts a process that sees no sysfs.  A mount namespace of the test's own has none.
if [ "$runtime" = pocl ]; then
    unsee='mount -t tmpfs tmpfs /sys && exec "$0" "$@"'
    if unshare --map-root-user --mount sh -c "$unsee" true 2>/dev/null; then
        run 0 env USM_DEVICE_SELECTOR='*:*' unshare --map-root-user --mount sh -c "$unsee" "$tool" --list
        says "it aborts programs where /sys is not mounted; mount it: mount -t sysfs sysfs /sys"
        says "host:0"
    else
        skip "no mount namespace can be made"
    fi
fi

[ "$runtime" = host ] || finish

# --- the command line -----------------------------------------------------------------------------

run 0 "$tool" --version && says "usm-info "
run 0 "$tool" --help && says --doctor && says --program
run 2 "$tool" --bogus && says "--bogus" && says "usm-info --help"
run 2 "$tool" --list --env && says "at a time"
run 2 "$tool" --markdown && says "--env"
run 2 "$tool" nonsense && says "'nonsense'"
run 2 "$tool" --program && says "Try usm-info --help"
run 2 "$tool" --program "$work/absent.cl" && says "$work/absent.cl: No such file"
run 2 "$tool" --program "$work" && says "$work: "

# --- the job, without MPI -------------------------------------------------------------------------

# alone COMMAND...: as without a launcher.
alone()
{
    env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE -u PMI_RANK -u PMI_SIZE -u PMI_FD \
        -u PMIX_RANK -u PALS_RANKID -u FLUX_TASK_RANK -u SLURM_PROCID "$@"
}
run 0 alone "$tool" --job && says "no job: no launcher"
run 0 alone SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 "$tool" --job
if [ -s "$work/out" ]; then
    fail "only rank 0 prints"
else
    pass
fi
run 0 alone SLURM_PROCID=0 SLURM_NTASKS=4 "$tool" --job --json
json 'd["schema"] == 1 and d["job"]["source"] == "slurm" and d["job"]["size"] == 4'
json 'd["job"]["members"] == [] and not d["job"]["attached"] and not d["job"]["local_known"]'
mkdir "$work/elsewhere" && cp "$tool" "$work/elsewhere/usm-info" # where no modules are
run 1 alone USM_PLUGIN_PATH= OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 \
    "$work/elsewhere/usm-info" --job &&
    says "rank 0 of 2, as Open MPI's launcher says" && says "there is no libusm_transport_mpi_openmpi.so"

if ls "$(dirname "$tool")"/../lib/libusm_transport_mpi_*.so >/dev/null 2>&1; then
    run 0 env USM_SPILL=mpi "$tool" && says "mpi in a job memory of other ranks, once a program has"
    run 0 env USM_SPILL=mpi "$tool" --json
    json 'd["spill"][0]["state"] == "in a job"'
fi
run 0 env USM_SPILL=mpi USM_PLUGIN_PATH= "$work/elsewhere/usm-info" && says "mpi refused there is no module"

# --- settings -------------------------------------------------------------------------------------

run 0 "$tool" --env && says "USM_DEVICE_SELECTOR host:* USM_DEVICE_SELECTOR" &&
    says "USM_VALIDATION 0 default"
not_says Backends
run 0 "$tool" --env --json
json 'any(s["variable"] == "USM_LOG" and s["origin"] == "default" for s in d["settings"])'
run 0 "$tool" --env --markdown
if sed -n '/settings: begin/,/settings: end/p' "$root/docs/settings.md" | grep '^|' |
    cmp -s - "$work/out"; then
    pass
else
    fail "docs/settings.md has the table of usm-info --env --markdown"
fi
run 0 env USM_VALIDATION=maybe "$tool" --env && says "USM_VALIDATION 0 default" && says "maybe"
run 1 env USM_VALIDATION=maybe "$tool" --doctor && says "USM_VALIDATION=maybe is ignored"
run 1 env USM_PLUGIN_PATH="$work:/nowhere" "$tool" --doctor && says "names /nowhere, which is not a folder"
run 0 env USM_LGO=1 "$tool" --doctor && says "USM_LGO is set but means nothing"
(
    unset USM_DEVICE_SELECTOR
    ONEAPI_DEVICE_SELECTOR='host:*' "$tool" --env >"$work/out" 2>"$work/err"
)
says "USM_DEVICE_SELECTOR host:* ONEAPI_DEVICE_SELECTOR"
run 0 env -u USM_POOL UR_L0_USM_ALLOCATOR='1;;0' "$tool" --env &&
    says "USM_POOL direct UR_L0_USM_ALLOCATOR"
run 0 env -u USM_POOL UR_L0_USM_ALLOCATOR='1;;0' "$tool" --env --json
json 'any(s["variable"] == "USM_POOL" and s["value"] == "direct" and s["origin"] == "UR_L0_USM_ALLOCATOR"
          and s["foreign"] == "UR_L0_DISABLE_USM_ALLOCATOR, UR_L0_USM_ALLOCATOR" for s in d["settings"])'
run 0 env USM_POOL='slab,colour=1' "$tool" --env && says "there is no option" && says "colour"

# --- spilling -------------------------------------------------------------------------------------

run 0 env USM_SPILL=off "$tool" && says "Spilling off: what does not fit into memory fails"
run 0 env USM_SPILL=off "$tool" --json && json 'd["spill"] == []'
run 0 env "USM_SPILL=file:$work/absent;river:1" "$tool" --json
json '[t["transport"] for t in d["spill"]] == ["file", "river"]'
json 'all(t["state"] == "refused" for t in d["spill"])'
json '"there is no transport" in d["spill"][1]["text"] and d["spill"][1]["config"] == "1"'
run 1 env USM_SPILL=river "$tool" --doctor && says "Nothing can be spilled to river: there is no"
if [ -e "${USM_PLUGIN_PATH:-.}/libusm_transport_file.so" ] && [ "$(stat -f -c %T /var/tmp)" != tmpfs ]; then
    run 0 env USM_SPILL=file:/var/tmp,quota=3G "$tool" && says "3 GiB of 3 GiB" && says "/var/tmp ("
    run 0 env USM_SPILL=file:/var/tmp,quota=3G "$tool" --json
    json 'd["spill"][0]["state"] == "ok" and d["spill"][0]["total"] == 3 << 30'
    json 'd["spill"][0]["path"].endswith("libusm_transport_file.so") and d["spill"][0]["depth"] > 0'
    json '0 <= d["spill"][0]["registered"] <= d["spill"][0]["offered"]'
    run 0 env USM_SPILL=file:/var/tmp "$tool" --doctor && says "file works: "
    run 1 env "USM_SPILL=file:$work/absent" "$tool" --doctor && says "$work/absent: No such file"
    if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
        run 1 env USM_SPILL=file:/dev/shm "$tool" --doctor && says "which is memory itself"
    fi
fi

# --- when there is no device, or the selector is wrong --------------------------------------------

run 1 env USM_DEVICE_SELECTOR='host:7' "$tool" && says "none: " && says "host:7" &&
    says "Devices there are host:0"
run 1 env USM_DEVICE_SELECTOR='host:7' "$tool" --json
json 'd["error"]["status"] == "USM_E_NO_DEVICE" and d["not_selected"][0]["index"] is None'
run 1 env USM_DEVICE_SELECTOR='host:7' "$tool" --list && says "host:7"
run 1 env USM_DEVICE_SELECTOR='host:7' "$tool" --doctor && says "host:7"
run 1 env USM_DEVICE_SELECTOR='host:7' "$tool" --program "$work/good.cl" --json
json 'd["devices"] == [] and "host:7" in d["error"]'

# --- programs -------------------------------------------------------------------------------------

printf 'USMK1 2\nopencl_c 5\nspirv 400\n\nshort' >"$work/broken.usmk"
run 1 "$tool" --program "$work/broken.usmk" && says "broken"
{
    printf 'USMK1 1\nopencl_c %s\n\n' "$(wc -c <"$work/good.cl" | tr -d ' ')"
    cat "$work/good.cl"
} >"$work/good.usmk"
run 1 "$tool" --program "$work/good.usmk" && says "bundle of opencl_c ("

# --- the doctor: OpenCL's drivers -----------------------------------------------------------------

run 0 "$tool" --doctor && says "$work/libnone.so loads but finds no device"
mkdir "$work/icd" "$work/empty"
export OCL_ICD_VENDORS="$work/icd"
echo "$work/libmissing.so" >"$work/icd/broken.icd"
run 1 "$tool" --doctor
says "$work/icd/broken.icd names $work/libmissing.so, which does not load:"
says "$work/libmissing.so: cannot open"
says "or correct the path in $work/icd/broken.icd"
run 1 "$tool" --doctor --json
json 'd["problems"] >= 1 and any(f["level"] == "problem" and f["remedy"] for f in d["findings"])'
json 'any("libmissing.so" in f["finding"] for f in d["findings"])'
echo >"$work/icd/broken.icd"
run 1 "$tool" --doctor && says "$work/icd/broken.icd names no library."
echo libm.so.6 >"$work/icd/broken.icd"
run 1 "$tool" --doctor && says "libm.so.6, which is no OpenCL driver"
run 1 env OCL_ICD_VENDORS="$work/icd/broken.icd" "$tool" --doctor &&
    says "libm.so.6, which is no OpenCL driver"
rm "$work/icd/broken.icd"
run 1 env OCL_ICD_VENDORS="$work/empty" "$tool" --doctor && says "$work/empty holds no .icd file"
run 1 env OCL_ICD_VENDORS="$work/absent" "$tool" --doctor
says "OCL_ICD_VENDORS names $work/absent: No such file or directory" && says "Unset OCL_ICD_VENDORS"

# --- the doctor: the machine, as a folder that stands for / ---------------------------------------

export OCL_ICD_VENDORS="$work/healthy"
fake=$work/root
mkdir -p "$fake/dev/dri" "$fake/sys/class/drm/renderD128/device" "$fake/proc/sys/vm" \
    "$fake/etc/OpenCL/vendors"
: >"$fake/dev/dri/renderD128"
echo 0x8086 >"$fake/sys/class/drm/renderD128/device/vendor"
run 0 "$tool" --doctor --root "$fake"
says "renderD128 belongs to an Intel GPU, but no .icd file names libigdrcl" && says intel-opencl-icd
echo 0x1002 >"$fake/sys/class/drm/renderD128/device/vendor"
run 0 "$tool" --doctor --root "$fake" && says "an AMD GPU"
: >"$fake/dev/nvidia0"
run 0 "$tool" --doctor --root "$fake" && says "nvidia0 belongs to an NVIDIA GPU" && says nvidia.icd
run 1 env -u OCL_ICD_VENDORS "$tool" --doctor --root "$fake"
says "OpenCL has no driver: $fake/etc/OpenCL/vendors holds no .icd file."

# Two loaders: Khronos's reads OCL_ICD_FILENAMES and cuts it in the environment, others do not read it.
required=$(sed -n '/define OCL_REQUIRED/,/^$/s/.*X(\(cl[A-Za-z]*\)).*/\1/p' "$root/backends/opencl/opencl.h")
for name in $required; do
    [ "$name" = clGetPlatformIDs ] || echo "int $name(void) { return -1; }"
done >"$work/loader.c"
cat >>"$work/loader.c" <<'END'
#include <stdlib.h>
#include <string.h>
int clGetPlatformIDs(void)
{
#ifdef READS
    char *names = getenv("OCL_ICD_FILENAMES"), *second = names ? strchr(names, ':') : NULL;
    if (second)
        *second = 0;
#endif
    return -1001;
}
END
mkdir "$work/khronos" "$work/other"
build "$work/khronos/libOpenCL.so.1" -DREADS "$work/loader.c"
build "$work/other/libOpenCL.so.1" "$work/loader.c"
cp "$work/libnone.so" "$work/libfirst.so"
cp "$work/libnone.so" "$work/libsecond.so"
run 0 env LD_LIBRARY_PATH="$work/khronos" OCL_ICD_FILENAMES="$work/libfirst.so:$work/libsecond.so" \
    USM_DEVICE_SELECTOR='*:*' "$tool" --doctor
says "$work/libfirst.so loads" && says "$work/libsecond.so loads"
run 1 env LD_LIBRARY_PATH="$work/other" OCL_ICD_FILENAMES="$work/libnvidia-opencl.so.1" \
    "$tool" --doctor --root "$fake"
says "OCL_ICD_FILENAMES is set, but the loader $work/other/libOpenCL.so.1 does not read it"
says "nvidia0 belongs to an NVIDIA GPU, but no .icd file names libnvidia-opencl"
echo 2 >"$fake/proc/sys/vm/overcommit_memory"
run 0 "$tool" --doctor --root "$fake"
says "vm.overcommit_memory is 2"

# No permission: root may do everything, so it becomes somebody else first.
chmod 755 "$work" "$fake" "$fake/dev" "$fake/dev/dri"
# Nobody else may be able to enter the folder of the build: it runs a copy.
cp "$tool" "$work/usm-info"
as_nobody=
if [ "$(id -u)" -eq 0 ]; then
    as_nobody='setpriv --reuid=65534 --clear-groups'
    # shellcheck disable=SC2086  # words
    $as_nobody test -x "$work/usm-info" 2>/dev/null || as_nobody=none
fi
if [ "$as_nobody" = none ]; then
    skip "nobody else can run $work/usm-info here"
else
    chmod 600 "$fake/dev/dri/renderD128"
    [ -z "$as_nobody" ] && chmod 000 "$fake/dev/dri/renderD128"
    # shellcheck disable=SC2086
    HOME=$work $as_nobody "$work/usm-info" --doctor --root "$fake" >"$work/out" 2>"$work/err"
    says "No permission to open $fake/dev/dri/renderD128" && says "lets no group in"
    if [ -n "$as_nobody" ]; then
        chmod 660 "$fake/dev/dri/renderD128"
        group=$(sed -n 's/^\(video\|daemon\|bin\):.*/\1/p' /etc/group | head -n 1)
        chgrp "$group" "$fake/dev/dri/renderD128"
        # shellcheck disable=SC2086
        HOME=$work $as_nobody "$work/usm-info" --doctor --root "$fake" >"$work/out" 2>"$work/err"
        says "Join the group $group (sudo usermod -aG $group"
    fi
fi
: >"$work/file"
run 1 env USM_CACHE_DIR="$work/file/cache" "$tool" --doctor &&
    says "$work/file/cache cannot be written"
run 0 env USM_CACHE_DIR=off "$tool" --doctor && says "not kept on disk"
(
    # shellcheck disable=SC3045  # dash and bash have it; without, the check below fails
    ulimit -l 64
    "$tool" --doctor >"$work/out" 2>"$work/err"
)
says "Only 64 KiB of memory may be locked"

# --- devices and drivers that misbehave -----------------------------------------------------------

mkdir "$work/modules" "$work/wrong"
build "$work/modules/libusm_backend_fake.so" -I "$root/include" "$here/fake_backend.c"
plugins=$work/modules${USM_PLUGIN_PATH:+:$USM_PLUGIN_PATH}
# fake MODE STATUS ARGUMENT...
fake()
{
    mode=$1
    wanted_status=$2
    shift 2
    run "$wanted_status" env FAKE_MODE="$mode" USM_PLUGIN_PATH="$plugins" \
        USM_DEVICE_SELECTOR='fake:*' "$tool" "$@"
}

# This one takes 20 s: the rest runs meanwhile.
(
    FAKE_MODE=hang USM_PLUGIN_PATH=$plugins USM_DEVICE_SELECTOR='fake:*' "$tool" --json \
        >"$work/hang" 2>/dev/null
) &
hang=$!

fake still 0 && says "no: commands complete but move nothing" && says 'fake?"device"'
fake still 0 --json
json 'd["devices"][0]["moves_data"] == "no" and d["devices"][0]["memory"]["free"] is None'
json 'd["devices"][0]["name"] == "fake\t\"device\" \\ \ufffd"'
fake still 1 --doctor && says "fake:0" && says "does not work: commands complete" &&
    says "'!fake:0'"
fake crash 0 && says "commands crash ("
fake crash 0 --json
json 'd["devices"][0]["moves_data"] == "crashes"'
fake abi 1 && says "fake refused" && says "ABI 999"
fake abi 1 --json
json 'd["error"]["status"] == "USM_E_ABI" and "backend fake" in d["error"]["story"]'
json '[b for b in d["backends"] if b["name"] == "fake"][0]["state"] == "refused"'
fake abi 1 --doctor && says "The backend fake was refused" && says "999"
echo "not a library" >"$work/wrong/libusm_backend_fake.so"
plugins=$work/wrong
fake still 1 --doctor && says "$work/wrong/libusm_backend_fake.so does not load"
plugins=$work/modules${USM_PLUGIN_PATH:+:$USM_PLUGIN_PATH}

# Drivers of OpenCL: one that needs a library which is not there, one that kills its process.
echo 'int imf; int imf_f(void) { return imf; }' >"$work/imf.c"
echo 'int imf_f(void); int f(void) { return imf_f(); }' >"$work/needs.c"
echo '__attribute__((constructor)) static void die(void) { __builtin_trap(); }' >"$work/die.c"
build "$work/libimf.so" "$work/imf.c" -Wl,-soname,libimf.so
build "$work/libneeds.so" "$work/needs.c" -Wl,--no-as-needed "$work/libimf.so"
build "$work/libdie.so" "$work/die.c"
rm "$work/libimf.so"
echo "$work/libneeds.so" >"$work/icd/a.icd"
run 1 env OCL_ICD_VENDORS="$work/icd" "$tool" --doctor && says "libimf.so: cannot open" &&
    says "Install intel-cmplr-lib-rt"
echo "$work/libdie.so" >"$work/icd/a.icd"
run 1 env OCL_ICD_VENDORS="$work/icd" "$tool" --doctor && says "libdie.so" &&
    says "the process was killed: "
if "$tool" --doctor | grep -q 'ok *OpenCL loader' && "$tool" | grep -q '^ *opencl *loaded'; then
    run 1 env OCL_ICD_VENDORS="$work/icd" USM_DEVICE_SELECTOR='*:*' "$tool" --doctor
    says "A driver is fatal: while devices were listed, the process was killed"
    run 1 env OCL_ICD_VENDORS="$work/icd" USM_DEVICE_SELECTOR='*:*' "$tool"
    says "none: while devices were listed, the process was killed" && says Settings
    run 0 env OCL_ICD_VENDORS="$work/icd" "$tool" # which selects the host only
    says "those not selected cannot be shown" && says "moves_data yes"
else
    skip "no OpenCL loader or module: nothing loads the driver that dies"
fi

wait "$hang"
cp "$work/hang" "$work/out"
: >"$work/err"
json 'd["devices"][0]["moves_data"] == "hangs"'
finish
