// Include this first in every test that uses LibTorch and Catch2.
//
// c10 defines CHECK as a fatal macro; Catch2's must win. So what uses c10's goes first, and then it
// is undone. Its other macros stay: Catch2 has none of their names, and headers of LibTorch that
// are included later use them.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Logging.h>

#undef CHECK

#include <catch2/catch_test_macros.hpp>
