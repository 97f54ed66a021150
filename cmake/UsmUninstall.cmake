# cmake -DBUILD=<build folder> -P UsmUninstall.cmake: removes what the last `cmake --install` of that folder
# installed, and the folders that were libusm's alone.  The target `uninstall`.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# CMake writes one for all, or one for each component.
file(GLOB manifests "${BUILD}/install_manifest*.txt")
if(NOT manifests)
    message(FATAL_ERROR "nothing was installed from ${BUILD}: it has no install_manifest.txt")
endif()
set(folders "")
set(count 0)
foreach(manifest IN LISTS manifests)
    file(STRINGS "${manifest}" files)
    foreach(name IN LISTS files)
        set(file "$ENV{DESTDIR}${name}")
        if(EXISTS "${file}" OR IS_SYMLINK "${file}")
            file(REMOVE "${file}")
            math(EXPR count "${count} + 1")
        endif()
        cmake_path(GET file PARENT_PATH folder)
        while(folder MATCHES "/(include/usm|usm-[0-9]+|cmake/usm|doc/usm)(/|$)")
            list(APPEND folders "${folder}")
            cmake_path(GET folder PARENT_PATH folder)
        endwhile()
    endforeach()
    file(REMOVE "${manifest}")
endforeach()

# The deepest first.
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING)
foreach(folder IN LISTS folders)
    file(GLOB inside "${folder}/*" "${folder}/.*")
    if(IS_DIRECTORY "${folder}" AND NOT inside)
        file(REMOVE_RECURSE "${folder}")
    endif()
endforeach()
message(STATUS "Removed: ${count} files")
