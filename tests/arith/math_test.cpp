// Every float there is (in steps, so that it takes a moment only) against double precision.
#include "arith/math.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

using protrain::arith::PLACE;

}  // namespace
