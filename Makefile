# The front door. Everything is done by CMake's presets and by scripts/.
.PHONY: all test check format asan tsan clean

all:
	cmake --preset release
	cmake --build --preset release

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

clean:
	rm -rf build
