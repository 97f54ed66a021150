# Samples that run over teams are built without MPI, and once more for each MPI that is here: inside
# libusm's build NAME_openmpi and NAME_mpich, else NAME_mpi with the one that CMake finds.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Sets <name>_programs.
macro(sample_programs name)
    set(${name}_programs ${name})
    if(TARGET usm_modules) # inside libusm's build
        include(UsmMpi)
        foreach(mpi IN LISTS USM_MPIS)
            list(APPEND ${name}_programs ${name}_${mpi})
            set(sample_mpi_of_${name}_${mpi} usm_mpi_${mpi})
        endforeach()
    else()
        find_package(MPI COMPONENTS C)
        if(MPI_C_FOUND)
            list(APPEND ${name}_programs ${name}_mpi)
            set(sample_mpi_of_${name}_mpi MPI::MPI_C)
        endif()
    endif()
endmacro()

# What each of them is linked with.
function(sample_program program)
    target_link_libraries(${program} PRIVATE usm::usm m)
    target_compile_definitions(${program} PRIVATE _POSIX_C_SOURCE=200809L) # clock_gettime(), isatty()
    if(sample_mpi_of_${program})
        target_link_libraries(${program} PRIVATE ${sample_mpi_of_${program}})
        target_compile_definitions(${program} PRIVATE SAMPLE_HAS_MPI)
    endif()
    if(TARGET usm_dev) # inside libusm's build: its warnings and sanitizers
        target_link_libraries(${program} PRIVATE usm_dev)
    endif()
    if(TARGET usm_modules)
        add_dependencies(${program} usm_modules)
        add_dependencies(demo ${program})
    endif()
endfunction()
