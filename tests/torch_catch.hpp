// Include this first in every test that uses LibTorch and Catch2.
//
// c10 defines CHECK and its kin as fatal macros; Catch2's must win, so c10's go first and are
// undone.

#pragma once

#include <c10/util/Logging.h>

#undef CHECK
#undef LOG
#undef VLOG
#undef DCHECK

#include <catch2/catch_test_macros.hpp>
