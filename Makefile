# The front door. Everything is done by CMake's presets and by scripts/.
.PHONY: all fast test check format asan tsan clang clean

# What is installed; the tests are built where they are run.
all:
	cmake --preset release
	cmake --build --preset release --target installed

# What each room is asked alone: less than a minute, once they are built.
rooms = base graph arith ops onnx_import passes grad backend profile program state
fast:
	cmake --preset release
	cmake --build --preset release --target $(rooms:%=test_%)
	set -e; for room in $(rooms); do build/release/tests/test_$$room --gtest_brief=1; done

test:
	scripts/test.sh

# What a change must pass before it is sent.
check: test
	python3 scripts/layers.py
	python3 scripts/sizes.py
	git ls-files '*.cpp' '*.h' '*.c' '*.cu' ':!bindings/java/jni' | xargs clang-format --dry-run --Werror
	scripts/test.sh asan

format:
	git ls-files '*.cpp' '*.h' '*.c' '*.cu' ':!bindings/java/jni' | xargs clang-format -i

asan:
	scripts/test.sh asan

tsan:
	scripts/test.sh tsan

clang:
	scripts/install-dependencies.sh fuzz
	cmake --preset fuzz
	cmake --build --preset clang
	ctest --preset clang --parallel $$(nproc)

clean:
	rm -rf build
