# Compiler, linker and cache settings for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(TROUPE_SANITIZE "" CACHE STRING "Sanitizers for all targets: empty, 'address,undefined' or 'thread'")

add_library(troupe_settings INTERFACE)
target_compile_options(troupe_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-fno-math-errno>)
target_include_directories(troupe_settings INTERFACE ${CMAKE_SOURCE_DIR})
if(TROUPE_SANITIZE)
  # GCC 12 warns of uninitialized members of moved variants once sanitizers split their moves.
  # CAF's headers bind a null reference on purpose; toml++ reaches an 'unreachable' on bad Unicode.
  target_compile_options(troupe_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TROUPE_SANITIZE};-fno-omit-frame-pointer;-Wno-maybe-uninitialized>)
  target_link_options(troupe_settings INTERFACE -fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES undefined)
    target_compile_options(troupe_settings INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,unreachable;-fno-sanitize-recover=all>)
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Paths relative to the checkout, so that several checkouts and build folders share results. The sloppiness is
  # what ccache asks for before it remembers sources with precompiled headers; no source here prints __TIME__.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_MAXSIZE=8G ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()
