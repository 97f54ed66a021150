# How a test is added; tests/CMakeLists.txt holds the lists.
#
#   usm_add_plain_test(<name> SOURCES <file>... [options])      a C program: exit 0 passed, 77 skipped
#   usm_add_run(<name> [options])                               the same program once more, say over
#                                                               other RUNTIMES
#   usm_add_check(<name> COMMAND <command>... [options])        a script
#   usm_use_vclock(<name>...)                                   programs whose time-outs are under
#                                                               the virtual clock of tests/vclock.h
#   usm_add_fuzzer(<name> SOURCES <file>... [options])          LLVMFuzzerTestOneInput(): with clang's
#                                                               libFuzzer in the preset fuzz, elsewhere a
#                                                               program that replays its corpus,
#                                                               tests/fuzz/corpus/<name without fuzz_>
#
# Options:
#   LABELS <label>...    ctest -L: offline (needs a compiler and nothing else), unit, conformance,
#                        gate, stress, check, install, fuzz; `ci`, `repeat`, `soak`: not in `./run test`;
#                        `mpi-short`: of `ci`, but in `./run test` where an MPI is installed.
#                        Each test also has its folder (tests/spill) and runtime-<name>
#   RUNTIMES <name>...   names of tests/runtimes.sh; one test for each, <name>@<runtime> (default: none,
#                        which means no driver and no selector, and adds no suffix)
#   SHARED               link libusm.so as a user does (default: the internal archive with src/)
#   ARGS <arg>...        arguments of the program
#   ENVIRONMENT <X=y>... for the test
#   LIBS <lib>...        further libraries
#   SOURCE_DEFINES       definitions for the program
#   TIMEOUT <seconds>    default 120
#   DRIVER               label `driver`: it sees what one driver does and another does not.  Other tests are
#                        the same over every driver: over all runtimes but their first they have the label
#                        `ci`, over Intel's, and in sanitizers' builds, `repeat`, which `./run soak` runs
#   NOT_UNDER <name>...  `repeat` under these sanitizers, address or thread: what has one thread at a time
#                        shows ThreadSanitizer nothing, and what is the same once more shows it to one
#   WAITS                it waits more than it computes: of the three places of `ctest -j` that a processor
#                        stands for it takes one, where others take two, and it begins before them
#   LONG                 seconds of one processor: it begins before all but those that wait, so that the last
#                        test to end is a short one
#   LOCK <name>          nothing of that name runs beside it
#   SERIAL               nothing else runs beside it
#
# Every test runs under tests/with-runtime.sh, which sets the drivers, selectors and temporary folder that
# it sees, fails it when it leaves files or processes behind, and turns a skip that is not in
# tests/allowed_skips.txt into a failure when USM_TEST_NO_SKIP=1.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Not find_package(Python3): the system's own is wanted before any version manager's.
find_program(USM_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(USM_PYTHON NAMES python3)
mark_as_advanced(USM_PYTHON)
add_feature_info(python3 USM_PYTHON "the checks of symbols and includes, loading from Python")

set(_usm_test_options SHARED DRIVER WAITS LONG SERIAL)
set(_usm_test_values TIMEOUT LOCK)
set(_usm_test_lists SOURCES NOT_UNDER LABELS RUNTIMES ARGS LIBS SOURCE_DEFINES COMMAND ENVIRONMENT)

set(_usm_test_environment
    "USM_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib"
    "USM_TEST_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "USM_TEST_BINARY_DIR=${PROJECT_BINARY_DIR}"
    "USM_TEST_SANITIZE=${USM_SANITIZE}")
if(USM_SANITIZE)
    set(supp "${PROJECT_SOURCE_DIR}/tests")
    # allocator_may_return_null: SIZE_MAX is a test, not a mistake.  use_sigaltstack: LLVM inside PoCL gives the
    # thread that uses it first a signal stack of LLVM's, which ASan would unmap as its own at the thread's end.
    # intercept_tls_get_addr: gcc 12's takes the 16 bytes before a module's thread-local block for a header of
    # glibc 2.19 when the block begins 16 bytes into a page, and LeakSanitizer then follows them to nowhere
    # ("Tracer caught signal 11"); it finds such blocks through the thread's own table all the same.
    string(CONCAT asan_options
        "strict_string_checks=1:detect_stack_use_after_return=1:allocator_may_return_null=1:"
        "use_sigaltstack=0:intercept_tls_get_addr=0:abort_on_error=1")
    # detect_deadlocks: ThreadSanitizer follows 64 locks at most, and fork() holds one for each size
    # class of each pool; the order of locks is checked by src/base/mutex.c.  die_after_fork: the library's
    # threads are detached, and one that has said that it is done may still be on its way out when a test
    # forks; ThreadSanitizer counts it, and would end the child at its first thread.
    list(APPEND _usm_test_environment
        "ASAN_OPTIONS=${asan_options}"
        "LSAN_OPTIONS=print_suppressions=0:suppressions=${supp}/lsan.supp"
        "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:abort_on_error=1"
        "TSAN_OPTIONS=halt_on_error=1:detect_deadlocks=0:die_after_fork=0:suppressions=${supp}/tsan.supp")
    # Jobs of MPIs, which leak, and are not instrumented.  Suppressions name libraries, and ThreadSanitizer
    # ends when an MPI loads such a one and unloads it; it does not bear that UCX's hooks are called at
    # the very end of threads.  Leases are for processes that are twenty times slower.
    set(usm_mpi_environment "ASAN_OPTIONS=${asan_options}:detect_leaks=0"
        "TSAN_OPTIONS=halt_on_error=1:detect_deadlocks=0:ignore_noninstrumented_modules=1"
        "UCX_MEM_EVENTS=n" "USM_JOB_LEASE=30000" "USM_JOB_ORPHAN=33000")
endif()

# Each sanitizer has one MPI; they are not built for either.
set(usm_openmpi_under NOT_UNDER thread)
set(usm_mpich_under NOT_UNDER address)

# Which step of `./run` has a test over the last of these runtimes: `./run test` (no label), ci (which
# installs Intel's), or soak.
function(_usm_step_label is_driver_test out)
    set(before ${ARGN})
    list(POP_BACK before runtime)
    set(label "")
    if(runtime MATCHES "intel|^neo")
        set(label ci)
    endif()
    if(NOT is_driver_test AND (label OR before))
        set(label ci)
        if(USM_SANITIZE OR runtime MATCHES "intel|^neo")
            set(label repeat)
        endif()
    endif()
    set(${out} "${label}" PARENT_SCOPE)
endfunction()

# One ctest entry for each runtime.
function(_usm_register name)
    cmake_parse_arguments(PARSE_ARGV 1 arg
        "${_usm_test_options}" "${_usm_test_values}" "${_usm_test_lists}")
    if(NOT arg_RUNTIMES)
        set(arg_RUNTIMES none)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    # Those that nothing here could use.
    if(NOT TARGET usm_backend_opencl)
        list(FILTER arg_RUNTIMES EXCLUDE REGEX "^(pocl|intel|neo-[a-y]|neo-pair)")
    endif()
    if(NOT TARGET usm_backend_null)
        list(FILTER arg_RUNTIMES EXCLUDE REGEX "^null$")
    endif()
    if(NOT TARGET usm_backend_level_zero)
        list(FILTER arg_RUNTIMES EXCLUDE REGEX "^(ze-|neo-ze|neo-pair)")
    endif()
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
    if(arg_DRIVER)
        list(APPEND arg_LABELS driver)
    endif()
    set(places 2)
    set(cost 0)
    if(arg_LONG)
        set(cost 5)
    endif()
    if(arg_WAITS)
        set(places 1)
        set(cost 10)
    endif()
    foreach(sanitizer IN LISTS arg_NOT_UNDER)
        if(USM_SANITIZE MATCHES "${sanitizer}")
            list(APPEND arg_LABELS repeat)
        endif()
    endforeach()
    set(seen "")
    foreach(runtime IN LISTS arg_RUNTIMES)
        set(test "${name}@${runtime}")
        set(labels ${arg_LABELS} "${folder}")
        if(runtime STREQUAL "none")
            set(test "${name}")
        else()
            list(APPEND labels "runtime-${runtime}")
        endif()
        list(APPEND seen ${runtime})
        _usm_step_label("${arg_DRIVER}" step ${seen})
        list(APPEND labels ${step})
        add_test(NAME "${test}"
            COMMAND "${PROJECT_SOURCE_DIR}/tests/with-runtime.sh" ${runtime}
                    ${arg_COMMAND} ${arg_ARGS})
        set_tests_properties("${test}" PROPERTIES
            LABELS "${labels}"
            TIMEOUT ${arg_TIMEOUT}
            SKIP_RETURN_CODE 77
            PROCESSORS ${places}
            COST ${cost}
            RESOURCE_LOCK "${arg_LOCK}"
            RUN_SERIAL "${arg_SERIAL}"
            ENVIRONMENT "USM_TEST_NAME=${test};${_usm_test_environment};${arg_ENVIRONMENT}")
    endforeach()
endfunction()

function(_usm_test_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg
        "${_usm_test_options}" "${_usm_test_values}" "${_usm_test_lists}")
    add_executable(${name} ${arg_SOURCES})
    target_compile_definitions(${name} PRIVATE ${arg_SOURCE_DEFINES})
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    if(arg_SHARED)
        target_link_libraries(${name} PRIVATE usm::usm)
    else()
        target_link_libraries(${name} PRIVATE usm_internal)
    endif()
    target_link_libraries(${name} PRIVATE usm_dev Threads::Threads ${arg_LIBS})
    add_dependencies(${name} usm_modules)
endfunction()

# In a build for fuzzing there are only the fuzzers.

function(usm_add_plain_test name)
    if(USM_FUZZERS)
        return()
    endif()
    _usm_test_program(${name} ${ARGN})
    _usm_register(${name} ${ARGN} COMMAND $<TARGET_FILE:${name}>)
endfunction()

function(usm_use_vclock)
    foreach(name IN LISTS ARGN)
        if(TARGET ${name})
            target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/vclock.c")
            foreach(call IN ITEMS ppoll pthread_cond_wait pthread_cond_timedwait pthread_cond_signal
                    pthread_cond_broadcast)
                target_link_options(${name} PRIVATE LINKER:--wrap=${call})
            endforeach()
        endif()
    endforeach()
endfunction()

function(usm_add_run name)
    if(TARGET ${name}) # fuzzing builds leave most programs out
        _usm_register(${name} ${ARGN} COMMAND $<TARGET_FILE:${name}>)
    endif()
endfunction()

function(usm_add_check name)
    if(NOT USM_FUZZERS)
        _usm_register(${name} ${ARGN})
    endif()
endfunction()

function(usm_add_fuzzer name)
    _usm_test_program(${name} ${ARGN})
    string(REGEX REPLACE "^fuzz_" "" corpus "${name}")
    set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${corpus}")
    if(USM_FUZZERS)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set(corpus -runs=0 -error_exitcode=1 "${corpus}")
    else()
        target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fuzz/standalone_main.c")
    endif()
    _usm_register(${name} ${ARGN} COMMAND $<TARGET_FILE:${name}> ARGS ${corpus} LABELS offline fuzz)
endfunction()
