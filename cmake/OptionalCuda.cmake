# The CUDA toolkit is optional. Found: TROUPE_CUDA is on and .cu files are compiled and linked, with
# or without a GPU or a driver on this machine. Absent: each part has a stub file instead, unless the
# build needs CUDA (preset `cuda`).
#
# Included by the root file, because a language must be known to every folder that links its code.

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(TROUPE_NVCC nvcc PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(TROUPE_NVCC)
    set(CMAKE_CUDA_COMPILER ${TROUPE_NVCC})
  endif()
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # A100, H100, B200, and what comes after by compiling at its first start.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
endif()
set(TROUPE_CUDA OFF)
option(TROUPE_WITHOUT_CUDA "Build the stubs even where a CUDA toolkit is found" OFF)
option(TROUPE_NEEDS_CUDA "Configure nothing where no CUDA toolkit is found" OFF)
if(NOT TROUPE_WITHOUT_CUDA)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER AND NOT TROUPE_WITHOUT_CUDA)
  enable_language(CUDA)
  set(TROUPE_CUDA ON)
  # CMake 3.25 does not know nvcc's flags for C++20; newer ones do.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
endif()
if(TROUPE_NEEDS_CUDA AND NOT TROUPE_CUDA)
  message(FATAL_ERROR "this build needs a CUDA toolkit, and none is found: install one, with nvcc in the PATH or its "
    "folder in CUDA_HOME; or build the preset 'release', whose GPU parts are stubs then")
endif()
message(STATUS "CUDA parts: ${TROUPE_CUDA}")
