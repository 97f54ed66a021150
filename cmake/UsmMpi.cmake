# The MPIs that are here, several side by side, where CMake's FindMPI knows one.  For what is built
# against each of them: modules, samples, benchmarks, tests.
#
#   USM_MPIS                     those found, of: openmpi mpich
#   usm_mpi_<name>               a target to link: its headers and library
#   USM_MPI_LAUNCHER_<name>      its mpirun or mpiexec
#   USM_MPIS_LACK                what each of the others lacks, a sentence for each
#
# Asked are the compiler wrappers, mpicc.openmpi and mpicc.mpich (Debian) or mpicc, which say what
# they are; -DUSM_MPICC_OPENMPI=/opt/openmpi/bin/mpicc and -DUSM_MPICC_MPICH= name others.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

include_guard(GLOBAL)

# What the wrapper adds to a compiler's command; empty when it is another MPI's.  Open MPI answers to
# --showme, MPICH and its relatives to -compile_info and -link_info.
function(usm_ask_mpi wrapper name out)
    set(questions --showme:compile --showme:link)
    if(name STREQUAL "mpich")
        set(questions -compile_info -link_info)
    endif()
    set(text "")
    foreach(question IN LISTS questions)
        execute_process(COMMAND "${wrapper}" ${question}
            OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE rc TIMEOUT 20)
        if(NOT rc EQUAL 0)
            set(said "")
        endif()
        string(APPEND text " ${said}")
    endforeach()
    string(REGEX REPLACE "[ \n]+" ";" words "${text}")
    string(REPLACE "\"" "" words "${words}")
    set(${out} "${words}" PARENT_SCOPE)
endfunction()

# -> USM_MPIS, the target, USM_MPI_LAUNCHER_<name>; or USM_MPIS_LACK
function(usm_find_mpi name library launchers)
    string(TOUPPER "${name}" upper)
    set(packages "Debian: lib${name}-dev, ${name}")
    if(name STREQUAL "openmpi")
        set(packages "Debian: libopenmpi-dev, openmpi-bin")
    endif()
    find_program(USM_MPICC_${upper} NAMES mpicc.${name} mpicc
        DOC "The compiler wrapper of ${name}")
    mark_as_advanced(USM_MPICC_${upper})
    set(wrapper "${USM_MPICC_${upper}}")
    if(NOT wrapper)
        set(USM_MPIS_LACK ${USM_MPIS_LACK} "${name}: there is no mpicc.${name} (${packages})" PARENT_SCOPE)
        return()
    endif()
    usm_ask_mpi("${wrapper}" ${name} words)
    set(dirs "${words}")
    list(FILTER dirs INCLUDE REGEX "^-L")
    list(TRANSFORM dirs REPLACE "^-L" "")
    set(includes "${words}")
    list(FILTER includes INCLUDE REGEX "^-I")
    list(TRANSFORM includes REPLACE "^-I" "")
    list(REMOVE_DUPLICATES includes)
    if(NOT includes OR NOT dirs)
        set(USM_MPIS_LACK ${USM_MPIS_LACK} "${name}: ${wrapper} is another MPI's (${packages})" PARENT_SCOPE)
        return()
    endif()
    find_library(USM_MPI_LIBRARY_${upper} NAMES ${library} PATHS ${dirs} NO_DEFAULT_PATH)
    mark_as_advanced(USM_MPI_LIBRARY_${upper})
    # The launcher has the wrapper's name, up to the verb.
    get_filename_component(folder "${wrapper}" DIRECTORY)
    get_filename_component(wrapper_name "${wrapper}" NAME)
    string(REPLACE "mpicc" "" suffix "${wrapper_name}")
    list(TRANSFORM launchers APPEND "${suffix}")
    find_program(USM_MPI_LAUNCHER_${name} NAMES ${launchers} HINTS "${folder}"
        DOC "What starts programs of ${name}")
    mark_as_advanced(USM_MPI_LAUNCHER_${name})
    if(NOT USM_MPI_LIBRARY_${upper} OR NOT USM_MPI_LAUNCHER_${name})
        set(absent "lib${library} is not in ${dirs}")
        if(USM_MPI_LIBRARY_${upper})
            list(JOIN launchers " nor " absent)
            string(PREPEND absent "there is no ")
        endif()
        set(USM_MPIS_LACK ${USM_MPIS_LACK} "${name}: ${absent} (${packages})" PARENT_SCOPE)
        return()
    endif()
    add_library(usm_mpi_${name} INTERFACE IMPORTED GLOBAL)
    target_include_directories(usm_mpi_${name} SYSTEM INTERFACE ${includes})
    target_link_libraries(usm_mpi_${name} INTERFACE "${USM_MPI_LIBRARY_${upper}}")
    set(USM_MPIS ${USM_MPIS} ${name} PARENT_SCOPE)
endfunction()

set(USM_MPIS "")
set(USM_MPIS_LACK "")
usm_find_mpi(openmpi mpi "mpirun;mpiexec")
usm_find_mpi(mpich "mpich;mpi" "mpiexec;mpirun")
set(USM_MPIS "${USM_MPIS}" CACHE INTERNAL "")
set(USM_MPIS_LACK "${USM_MPIS_LACK}" CACHE INTERNAL "")
