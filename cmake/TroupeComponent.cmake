# troupe_component(NAME SOURCES file... [DEPS target...] [PRIVATE_DEPS target...])
#   Static library troupe_NAME. DEPS name other components without their prefix, or imported targets.
#   A component whose sources are empty is a header-only interface library.
#
# troupe_test(NAME SOURCES file... DEPS target... [LABELS label...] [TIMEOUT seconds])
#   Test program test_NAME, registered with CTest as one test. Its results, case by case, are left in
#   tests/NAME.xml of the build folder, where scripts/test counts them. Labels that follow from what it links:
#   `plain` (neither LibTorch nor CAF) and `without_caf`; the targets tests_plain, tests_without_caf and
#   tests_all build such programs.
#
# troupe_bench(NAME SOURCES file... DEPS target...)
#   Bench program NAME_bench, built by scripts/bench alone; see tests/bench/README.md.

function(_troupe_resolve out)
  set(resolved)
  foreach(name ${ARGN})
    if(TARGET troupe_${name})
      list(APPEND resolved troupe_${name})
    elseif(name MATCHES "::")
      list(APPEND resolved ${name})
    else()
      message(FATAL_ERROR "unknown dependency '${name}': folders may only depend on lower layers")
    endif()
  endforeach()
  set(${out} ${resolved} PARENT_SCOPE)
endfunction()

function(troupe_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;PRIVATE_DEPS")
  _troupe_resolve(deps ${arg_DEPS})
  _troupe_resolve(private_deps ${arg_PRIVATE_DEPS})
  if(arg_SOURCES)
    add_library(troupe_${name} STATIC ${arg_SOURCES})
    target_link_libraries(troupe_${name} PUBLIC troupe_settings ${deps} PRIVATE ${private_deps})
  else()
    add_library(troupe_${name} INTERFACE)
    target_link_libraries(troupe_${name} INTERFACE troupe_settings ${deps})
  endif()
endfunction()

# Everything that a target links, directly or not, appended to the list `out`.
function(_troupe_closure target out)
  set(seen ${${out}})
  foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(libraries ${target} ${property})
    if(NOT libraries)
      continue()
    endif()
    foreach(library ${libraries})
      string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
      if(TARGET ${library} AND NOT library IN_LIST seen)
        list(APPEND seen ${library})
        _troupe_closure(${library} seen)
      endif()
    endforeach()
  endforeach()
  set(${out} ${seen} PARENT_SCOPE)
endfunction()

foreach(group all plain without_caf)
  add_custom_target(tests_${group})
endforeach()

function(troupe_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPS;LABELS")
  _troupe_resolve(deps ${arg_DEPS})
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${deps} Catch2::Catch2WithMain)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(libraries)
  _troupe_closure(test_${name} libraries)
  set(groups all)
  if(libraries MATCHES "Torch::" AND libraries MATCHES "CAF::")
    troupe_precompiled(test_${name} actor_tests)
  elseif(libraries MATCHES "Torch::")
    troupe_precompiled(test_${name} torch_tests)
  else()
    troupe_precompiled(test_${name} tests)
  endif()
  if(NOT libraries MATCHES "CAF::")
    list(APPEND groups without_caf)
    if(NOT libraries MATCHES "Torch::")
      list(APPEND groups plain)
    endif()
  endif()
  foreach(group ${groups})
    add_dependencies(tests_${group} test_${name})
  endforeach()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  # Exit code 4: every case was skipped. One thread per operator, so that sums are the same everywhere.
  add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    COMMAND test_${name} --allow-running-no-tests --reporter console
      --reporter xml::out=${CMAKE_BINARY_DIR}/tests/${name}.xml)
  if(TROUPE_SANITIZE) # Ten times as slow, on machines that do something else besides.
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "catch2;${groups};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 4 ENVIRONMENT "OMP_NUM_THREADS=1")
  # Connections have deadlines: what opens some is not to share the cores with another test.
  if(libraries MATCHES "troupe_transport|CAF::")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(troupe_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  _troupe_resolve(deps ${arg_DEPS})
  add_executable(bench_${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(bench_${name} PRIVATE Troupe::allocator troupe_settings ${deps})
  set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name}_bench
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
