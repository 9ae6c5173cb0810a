"""make - the expected values of tests/checkmetrics.c, computed without darkroom's code.

PSNR and SSIM come from scikit-image; MS-SSIM, for which it has no function, from the equations of the paper (Wang, Simoncelli
and Bovik 2003) in numpy, with the window as an explicit two-dimensional sum. Needs python3-skimage. Prints lines of C.
"""
import numpy as np
import skimage
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


def picture(w, h):
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return (2 * x + 3 * y + 50 * c + 64 * (((x >> 3) + (y >> 3)) & 1)) & 255


def noisy(a, k):
    y, x, c = np.mgrid[0:a.shape[0], 0:a.shape[1], 0:3].astype(np.uint64)
    u = ((x * 73856093) ^ (y * 19349663) ^ (c * 83492791)) & 0xffffffff
    u = (u * 1664525 + 1013904223) & 0xffffffff
    return np.clip(a + (u >> 24).astype(int) % k - k // 2, 0, 255)


def blurred(a):
    p = np.pad(a, ((1, 1), (1, 1), (0, 0)), "edge")
    h, w = a.shape[:2]
    return sum(p[i:i + h, j:j + w] for i in range(3) for j in range(3)) // 9


def brighter(a):
    return np.clip(a + 12, 0, 255)


def grey(a):
    return a.astype(np.float64) @ np.array([.299, .587, .114])


def ssim_parts(a, b):
    """-> mean SSIM, mean contrast * structure, each window summed directly"""
    n = min(11, min(a.shape) - (min(a.shape) % 2 == 0))
    t = np.arange(n) - n // 2
    window = np.exp(-(t[:, None] ** 2 + t[None, :] ** 2) / (2 * 1.5 ** 2))
    window /= window.sum()
    va = np.lib.stride_tricks.sliding_window_view(a, (n, n))
    vb = np.lib.stride_tricks.sliding_window_view(b, (n, n))

    def mean(v):
        return np.einsum("yxij,ij->yx", v, window)
    ma, mb = mean(va), mean(vb)
    da, db = va - ma[..., None, None], vb - mb[..., None, None]
    c1, c2 = (.01 * 255) ** 2, (.03 * 255) ** 2
    cs = (2 * mean(da * db) + c2) / (mean(da * da) + mean(db * db) + c2)
    return ((2 * ma * mb + c1) / (ma ** 2 + mb ** 2 + c1) * cs).mean(), cs.mean()


def ms_ssim(a, b):
    exponents = np.array([.0448, .2856, .3001, .2363, .1333])
    n = sum(min(a.shape) // 2 ** i >= 11 for i in range(5)) or 1
    exponents = exponents[:n] / exponents[:n].sum()
    out = 1.
    for i in range(n):
        ssim, cs = ssim_parts(a, b)
        out *= max(ssim if i == n - 1 else cs, 0) ** exponents[i]
        h, w = a.shape[0] // 2, a.shape[1] // 2
        a, b = (v[:2 * h, :2 * w].reshape(h, 2, w, 2).mean((1, 3)) for v in (a, b))
    return out, n


print("/* scikit-image", skimage.__version__, "*/")
for w, h in [(200, 181), (128, 128), (33, 46), (17, 10)]:
    a = picture(w, h)
    for kind, b in [("NOISY", noisy(a, 31)), ("NOISIER", noisy(a, 121)), ("BLURRED", blurred(a)), ("BRIGHTER", brighter(a))]:
        psnr = peak_signal_noise_ratio(a.astype(np.uint8), b.astype(np.uint8), data_range=255)
        own, _ = ssim_parts(grey(a), grey(b))
        if min(w, h) >= 11:
            ssim = structural_similarity(grey(a), grey(b), gaussian_weights=True, sigma=1.5,
                                         use_sample_covariance=False, data_range=255)
            assert abs(ssim - own) < 1e-9, (ssim, own)
        multi, n = ms_ssim(grey(a), grey(b))
        g = grey(b)
        dx, dy = g[:-1, 1:] - g[:-1, :-1], g[1:, :-1] - g[:-1, :-1]
        print("    {%d, %d, %s, %.6f, %.6f, %.6f, %d, %.6f, %.6f}," % (
            w, h, kind, psnr, own, multi, n, np.sqrt((dx ** 2 + dy ** 2).mean()), g.std()))
