// Codes: numbers of a few bits that stand for fixed floats in [-1, 1], as bitsandbytes has them. A block of numbers is
// stored as codes and the largest magnitude of the block.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

inline constexpr int kNf4Zero = 7;  // the code of 0

// Returns the float that a code of NF4 (NormalFloat, 4 bits) stands for. The 16 floats are quantiles of the normal
// distribution (Dettmers et al. 2023, appendix E).
PROTRAIN_HD float nf4(int code) {
  static constexpr float kValues[16] = {
      -1.0f,         -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f, -0.0910500363f, 0.0f,
      0.0795802996f, 0.160930201f,  0.246112302f,  0.337915242f,  0.440709829f,  0.562617004f, 0.722956836f,   1.0f};
  return kValues[code];
}

// Returns what a code of eight bits of the dynamic type stands for (Dettmers 2015). Larger codes stand for larger
// numbers: 127 stands for 0, 255 for 1, and 127 - i for the negative of what 127 + i stands for. The other magnitudes
// are the middles of equal parts of the decades from 1e-7 to 1. The lowest decade has one part, the next decade has
// two, then four, and so on to 64.
PROTRAIN_HD float dynamic8(int code) {
  static constexpr float kMagnitudes[128] = {5.50000038e-07f, 3.25000019e-06f, 7.7499999e-06f,  2.12499981e-05f,
                                             4.37499984e-05f, 6.62500024e-05f, 8.87499991e-05f, 0.000156250011f,
                                             0.000268750038f, 0.000381250022f, 0.000493750034f, 0.000606250076f,
                                             0.00071875006f,  0.000831249985f, 0.000943750085f, 0.00128124992f,
                                             0.00184375001f,  0.00240624999f,  0.00296874996f,  0.00353124971f,
                                             0.00409374991f,  0.00465624966f,  0.00521875033f,  0.00578125007f,
                                             0.00634374982f,  0.00690625003f,  0.00746874977f,  0.00803124998f,
                                             0.00859375019f,  0.00915624946f,  0.00971874967f,  0.0114062503f,
                                             0.0142187504f,   0.0170312505f,   0.0198437516f,   0.0226562507f,
                                             0.0254687499f,   0.028281251f,    0.0310937501f,   0.0339062512f,
                                             0.0367187522f,   0.0395312496f,   0.0423437469f,   0.0451562516f,
                                             0.047968749f,    0.05078125f,     0.053593751f,    0.0564062484f,
                                             0.0592187531f,   0.0620312504f,   0.0648437515f,   0.0676562563f,
                                             0.0704687461f,   0.0732812509f,   0.0760937482f,   0.078906253f,
                                             0.0817187577f,   0.0845312476f,   0.0873437524f,   0.0901562497f,
                                             0.0929687545f,   0.0957812592f,   0.0985937491f,   0.107031256f,
                                             0.12109375f,     0.135156244f,    0.149218753f,    0.163281247f,
                                             0.177343756f,    0.19140625f,     0.205468744f,    0.219531253f,
                                             0.233593747f,    0.247656241f,    0.26171875f,     0.275781274f,
                                             0.289843738f,    0.303906262f,    0.317968726f,    0.33203125f,
                                             0.346093744f,    0.360156238f,    0.374218762f,    0.388281226f,
                                             0.40234375f,     0.416406244f,    0.430468738f,    0.444531262f,
                                             0.458593726f,    0.47265625f,     0.486718714f,    0.500781238f,
                                             0.514843702f,    0.528906226f,    0.54296875f,     0.557031274f,
                                             0.571093798f,    0.585156262f,    0.599218726f,    0.61328125f,
                                             0.627343774f,    0.641406298f,    0.655468762f,    0.669531226f,
                                             0.68359375f,     0.697656274f,    0.711718798f,    0.725781262f,
                                             0.739843726f,    0.75390625f,     0.767968774f,    0.782031238f,
                                             0.796093762f,    0.810156226f,    0.82421875f,     0.838281274f,
                                             0.852343738f,    0.866406262f,    0.880468726f,    0.89453125f,
                                             0.908593774f,    0.922656238f,    0.936718762f,    0.950781226f,
                                             0.96484375f,     0.978906274f,    0.992968738f,    1.0f};
  if (code == 127) return 0;
  return code > 127 ? kMagnitudes[code - 128] : -kMagnitudes[126 - code];
}

}  // namespace protrain::arith
