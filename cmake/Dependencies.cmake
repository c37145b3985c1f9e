# Third-party libraries as imported targets. scripts/setup installs them. Installed too: a program of the user's own
# needs the same ones.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PNG REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(ucx CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
pkg_check_modules(CBC REQUIRED IMPORTED_TARGET cbc)
pkg_check_modules(SNDFILE REQUIRED IMPORTED_TARGET sndfile)
pkg_check_modules(SOXR REQUIRED IMPORTED_TARGET soxr)
pkg_check_modules(TURBOJPEG REQUIRED IMPORTED_TARGET libturbojpeg)
pkg_check_modules(KISSFFT REQUIRED IMPORTED_TARGET kissfft-float)

# CAF 0.17 ships neither a CMake package nor a pkg-config file.
find_path(CAF_INCLUDE caf/all.hpp REQUIRED)
foreach(part core io)
  find_library(CAF_${part} caf_${part} REQUIRED)
  add_library(CAF::${part} UNKNOWN IMPORTED)
  set_target_properties(CAF::${part} PROPERTIES IMPORTED_LOCATION ${CAF_${part}}
    INTERFACE_INCLUDE_DIRECTORIES ${CAF_INCLUDE})
endforeach()
target_link_libraries(CAF::io INTERFACE CAF::core Threads::Threads)

# The allocator of programs that train: a step asks for thousands of tensors, and glibc takes 7 % longer over
# them (README). Sanitizers bring their own.
if(NOT TARGET Troupe::allocator)
  add_library(troupe_allocator INTERFACE)
  add_library(Troupe::allocator ALIAS troupe_allocator)
  if(NOT TROUPE_SANITIZE)
    find_library(TCMALLOC NAMES tcmalloc_minimal libtcmalloc_minimal.so.4 REQUIRED)
    target_link_libraries(troupe_allocator INTERFACE ${TCMALLOC})
  endif()
endif()

# LibTorch from the wheel that scripts/setup put aside (TORCH_DIR: the folder that holds lib/ and include/).
set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "LibTorch: the torch folder of the wheel")
if(NOT TORCH_DIR OR NOT EXISTS ${TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch not found in TORCH_DIR='${TORCH_DIR}'. Use scripts/build, or run scripts/setup "
    "and set the environment variable TORCH_DIR to what it prints.")
endif()

# The wheel ships its own fmt, which breaks Debian's spdlog: the system's fmt stands before it.
set(FMT_SHIM ${CMAKE_BINARY_DIR}/fmt-shim)
file(MAKE_DIRECTORY ${FMT_SHIM})
file(CREATE_LINK /usr/include/fmt ${FMT_SHIM}/fmt SYMBOLIC)

add_library(Torch::c10 SHARED IMPORTED)
set_target_properties(Torch::c10 PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/libc10.so
  INTERFACE_INCLUDE_DIRECTORIES
    "${FMT_SHIM};${TORCH_DIR}/include;${TORCH_DIR}/include/torch/csrc/api/include")
add_library(Torch::cpu SHARED IMPORTED)
set_target_properties(Torch::cpu PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/libtorch_cpu.so
  INTERFACE_LINK_LIBRARIES Torch::c10)

# The threads that LibTorch's operators run on: its own copy of GCC's OpenMP, so that there is one pool. Sanitizers
# do not see what these threads wait for and would report races, so operators of ours are serial there.
set(TORCH_THREADS_OPTION)
if(NOT TARGET Torch::threads)
  add_library(troupe_torch_threads INTERFACE)
  add_library(Torch::threads ALIAS troupe_torch_threads)
endif()
file(GLOB TORCH_OPENMP ${TORCH_DIR}/lib/libgomp*.so*)
if(TORCH_OPENMP AND NOT TROUPE_SANITIZE)
  list(GET TORCH_OPENMP 0 TORCH_OPENMP)
  target_link_libraries(troupe_torch_threads INTERFACE ${TORCH_OPENMP})
  set(TORCH_THREADS_OPTION -fopenmp)
endif()
