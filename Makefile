# The front door. CMake's presets and scripts/ do the work.
.PHONY: all fast test thorough check format asan tsan clang clean

# Builds what is installed. The targets that run tests build them.
all:
	cmake --preset release
	cmake --build --preset release --target installed

# Tests of single rooms: less than a minute once they are built.
rooms = base graph arith ops onnx_import passes grad backend profile program state
fast:
	cmake --preset release
	cmake --build --preset release --target $(rooms:%=test_%)
	set -e; for room in $(rooms); do build/release/tests/test_$$room --gtest_brief=1; done

test:
	scripts/test.sh

# The same tests with more random cases.
thorough:
	scripts/test.sh
	ctest --preset thorough --parallel $$(nproc) -R '^(random_plans|composed|onnx_import|faults)/|^conformance/RandomForms'

# Every change must pass this before it is sent.
check: test
	python3 scripts/layers.py
	python3 scripts/names.py
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
