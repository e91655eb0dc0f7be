"""Answer lines written by hand, with the verdict of a mathematician: gold answer, bar, line."""

EXAMPLES_RIGHT = r"""
(-\infty,-5) | x \in (-\infty,-5)
(-\infty,-5) | x < -5
2,4,3 | S = \{2,4,3\}
5 | 5 nm
5 | 5 GHz
5 | 5 kJ/mol
5 | 5 MPa
5 | $5 \mu m$
5 | $5 \Omega$
5 | $5 \AA$
5 | 5 ways
5 | 5 solutions
5 | 5 students
1.6 | \approx 1.6
1.6 | about 1.6
4.6e-24 | 4.6 × 10⁻²⁴
42 | $42$. This completes the solution.
42 | The answer is $42$.
42 | $42$ (as shown above).
3/2 | 1 1/2
70 | 70 \pmod{1000}
42 | \color{red}{42}
1,2 | x=1 \lor x=2
10/3 | 3.\overline{3}
42 | forty-two
"""
EXAMPLES_WRONG = r"""
5 | x = -3 or x = 5
5 | x = 1, x = 2, x = 3, x = 5
5 | m = 7, n = 5
7 | m = 7, n = 5
5 | x = 4 = 5
5 | -\boxed{5}
5 | 2\boxed{5}
10 | 1\boxed{5}
5 | \boxed{5}^2
5 | \boxed{5}0
5 | \frac{\boxed{5}}{2}
5 | x < \boxed{5}
5 | 6 or \boxed{5}
5 | 1, 2, 3, 4, \boxed{5}
5 | not \boxed{5}
5 | \boxed{5} is wrong; the answer is 6
6 | \boxed{5} is wrong; the answer is 6
248 | 249 = 248
249 | 249 = 248
5 | 1 = 2 = 5
5 | 5 \approx 6 \approx 7
7 | 5 \approx 6 \approx 7
2x | f(x) = 2x + 1 = 2x
f(x)=2x | f(x) = 2x + 1 = 2x
34 | 34_{8}
3100 | 3, 100
m | M
0 | not 0
0 | 1 (maybe 0)
(-\infty,-5) | \{-\infty,-5\}
$\frac{222}{13}$ | 17.077
"""
RIGHT = r"""
1/2 | 0.5
1/2 | \dfrac12
1/2 | 50%
0.333333 | 1/3
1/3 | 0.3333333
336^\circ | 336
336 | 336 degrees
4.5e33 | 4.5 \times 10^{33}
1e-5 | 10^{-5}
1e-5 | 0.00001
6630 | 6,630
6630 | 6 630
6630 | 6\,630
1.6 | 1.6 \mathrm{~cm}
9.8 | 9.8 m/s^2
9.8 | 9.8\text{ m/s}^2
45 | 45 minutes
k=1 | 1
1 | k = 1
f(x)=2 x | 2x
1,3,5 | 5, 3 and 1
1,3,5 | \{1, 3, 5\}
1,3 | 1 or 3
1,3 | \boxed{1} and \boxed{3}
1,3 | \boxed{1, 3}
1,-1 | \pm 1
$1+\sqrt{2}, 1-\sqrt{2}$ | 1 \pm \sqrt 2
(2,4) | \left( 2, \, 4 \right)
(2,4) | (\frac{4}{2}, 4.0)
$[\frac{1}{2}, 8]$ | [0.5, 8]
(-\infty, 0) \cup\{1\} | \{1\} \cup (-\infty, 0)
\frac{x^2}{2} | x^2/2
\sqrt{8} | 2\sqrt{2}
\sqrt{8} | 2*sqrt(2)
2^{1009} | 4^{504} \cdot 2
k \ge 2 | k >= 2
\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix} | $\begin{pmatrix}-\dfrac{1}{3}\\ \frac{2}{3}\end{pmatrix}$
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix} | \left[\begin{matrix} 1 & 0 \\ 0 & 1 \end{matrix}\right]
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix} | \begin{bmatrix}1&0\\[2pt]0&1\end{bmatrix}
x^2 - 1 | (x-1)(x+1)
42 | 42.
42 | $42.$
42 | \(42\).
42 | ${42}$
42 | $\boxed{42}$ students
42 | \boxed{42 \text{ students}}
42 | $\boxed{\text{42}}$
42 | $\text{42}$
42 | 42 different ways
42 | 42 (mod 100)
42 | So, the answer is **42**.
42 | The answer is: $42$
42 | the answer to the problem is 42.
42 | Final answer: 42
42 | $m+n=17+25=42$
42 | m + n = 42
42 | $m = 17$ and $n = 25$, so $m + n = 42$.
42 | $17 + 25 = \boxed{42}$.
42 | Thus, $m+n = 17+25 = \boxed{42}$.
42 | $N = 42$, as desired.
42 | n=42
42 | $n$ = $42$
42 | The number of ways is $42$.
42 | There are 42 such triples.
42 | there are exactly 42 solutions
42 | 42, since each case contributes 21.
42 | $|A \cup B| = 42$
42 | $\lfloor x \rfloor = 42$
42 | $42_{10}$
42 | $6 \cdot 7 = 42$
42 | $6 \times 7$
42 | 6*7
42 | $\frac{84}{2}$
42 | $\binom{7}{2} \cdot 2 = 42$
42 | 42 \quad \text{(Q.E.D.)}
42 | 42 ∎
42 | $42\ \blacksquare$
42 | $\textbf{42}$
42 | $\mathrm{42}$
42 | \textbf{42}
42 | __42__
42 | `42`
42 | "42"
42 | [42]
42 | {42}
42 | (42)
42 | \[\boxed{42}\]
42 | $$\boxed{42}$$
42 | $\fbox{42}$
42 | 042
42 | 42 units
42 | 42 square units
42 | $42\text{ cm}^2$
42 | $42 \text{ square centimeters}$
42 | $\$42$
42 | \$42
42 | 42 dollars
42 | 42 years old
42 | 42 miles per hour
42 | 42 mph
42 | forty two
42 | Forty-two
42 | $x=42$ is the only solution
42 | $42$ is the answer
42 | 42 is the final answer.
42 | We have $x = 42$.
42 | Therefore $x = \boxed{42}$ is our answer.
42 | Hence, the remainder when $N$ is divided by $1000$ is $42$.
42 | the sum of all possible values is 42
42 | The least possible value of $n$ is $42$.
42 | The value of $a + b + c$ is $\boxed{42}$
42 | The area of triangle $ABC$ is $42$
42 | $[ABC] = 42$
42 | $\angle ABC = 42^\circ$
42 | $42^{\circ}$
42 | 42 deg
42 | $\overline{AB} = 42$
42 | $AB = 42$
42 | $BC=42$ cm
42 | $\text{Area} = 42$
42 | Area = 42
42 | $S_{ABC} = 42$
42 | $a_{2024} = 42$
42 | $f(3) = 42$
42 | $P(5)=42$
42 | $\sum_{k=1}^{6} 2k = 42$
42 | $\max f = 42$
42 | $x^2 + y^2 = 42$
42 | $2^5 + 10 = 42$
42 | $(m, n) = (17, 25)$, thus $m+n = 42$
42 | $p + q = 42$.
42 | $42$ and we are done.
42 | $42$. Done!
42 | 42 ✓
42 | ✅ 42
42 | 42 ways.
42 | 42 integers
42 | 42 or forty-two
42 | 42 = 6·7
42 | $\left\lfloor 42.7 \right\rfloor = 42$
42 | (A) 42
42 | A) 42
42 | A. 42
42 | $\text{(A) }42$
42 | Option C: 42
42 | 42 (option C)
42 | $\boxed{\textbf{(A) } 42}$
42 | $42$ (where $n \geq 1$)
42 | $42$ (see above)
42 | $42$ [as computed]
42 | 42 – this is the total number of paths.
42 | 42; this follows from step 3
42 | Yes, 42.
42 | $x \equiv 42 \pmod{100}$
42 | $42 \mod 100$
42 | $\equiv 42$
42 | $\Rightarrow 42$
42 | $\therefore 42$
42 | => 42
42 | = 42
42 | → 42
42 | Answer: 42
42 | \text{Answer: } 42
42 | $\boxed{42}$.</s>
42 | $\boxed{42}$<|im_end|>
42 | 4.2e1
42 | 4.2 \times 10^1
42 | 42.000
42 | $\sqrt{1764}$
42 | \displaystyle\boxed{42}
42 | $\Large\boxed{42}$
42 | $\mathbf{\boxed{42}}$
42 | ${\boxed{42}}$
42 | $\hspace{1cm} 42$
42 | ANSWER 42
12600 | $12{,}600$
12600 | $12,\!600$
-6 | $-6$
-6 | −6
-6 | - 6
-6 | $x=-6$
-6 | (-6)
3.7 | $3.7$ m
3.7 | 3.70
3.7 | $\approx 3.7\ \text{m}$
3.7 | $3.7 \mathrm{~m} / \mathrm{s}$
3.7 | $3.7\,\text{m/s}$
3.7 | ~3.7
3.7 | ≈3.7 kg
3.7 | about 3.7 hours
3.7 | $t \approx 3.7 \mathrm{s}$
3.7 | $\sim 3.7$
3.7 | $37/10$
3.7 | $3 \frac{7}{10}$
3.7 | $3.7\times10^{0}$
3.7 | 3.7 \text{ solar masses}
3.7 | $3.7 M_{\odot}$
3.7 | $3.7 M_\odot$
3.7 | 3.7 arcseconds
3.7 | $3.7^{\prime\prime}$
3.7 | $3.7 \, \text{erg s}^{-1} \text{cm}^{-2}$
3.7 | 3.7 erg/s/cm^2
3.7 | $3.7\ \mathrm{kg\,m^2/s}$
3.7 | $3.7\ \mathrm{kg \cdot m^{2} \cdot s^{-1}}$
3.7 | $E = 3.7$ eV
3.7 | $\lambda = 3.7 \times 10^{0}$ m
3.7 | $R \approx 3.7\,R_\odot$
3.7 | $v = \frac{37}{10} = 3.7$
3.7 | $v=\sqrt{13.69}=3.7$ km/s
3.7 | $\boxed{3.7\ \text{km s}^{-1}}$
3.7 | 3.7 electron volts
3.7 | 3.7 Kelvin
3.7 | $\tau = RC = 3.7$
6.1e-12 | $6.1 \times 10^{-12}$ s
6.1e-12 | 6.1 × 10⁻¹² s
6.1e-12 | 6.1*10^(-12)
6.1e-12 | $6.1\cdot10^{-12}$
6.1e-12 | $6.1 \times 10^{-12} \mathrm{~s}$
6.1e-12 | 6.1e-12
6.1e-12 | 6.1E-12
6.1e-12 | 6.1 x 10^{-12}
6.1e-12 | \boxed{6.1 \times 10^{-12}}
6.1e-12 | $0.61 \times 10^{-11}$
6.1e-12 | 6.10 \times 10^{-12}
2.9e14 | $2.9 \times 10^{14}$ Hz
2.9e14 | 290000000000000
$\frac{5}{8}$ | 5/8
$\frac{5}{8}$ | 0.625
$\frac{5}{8}$ | .625
$\frac{5}{8}$ | \frac58
$\frac{5}{8}$ | \dfrac{5}{8}
$\frac{5}{8}$ | $\frac{5}{8}$ or 0.625
$\frac{5}{8}$ | 5/8 = 0.625
$\frac{5}{8}$ | $\frac{5}{8} = 62.5\%$
$\frac{5}{8}$ | 62.5%
$\frac{5}{8}$ | $P = \frac{5}{8}$
$\frac{5}{8}$ | $\frac{10}{16} = \frac{5}{8}$
$\frac{5}{8}$ | $5 \div 8$
$\frac{5}{8}$ | ${5\over8}$
$\frac{5}{8}$ | ⅝
$\frac{5}{8}$ | the probability is 5/8
$\frac{340}{19}$ | 17 17/19
$\frac{340}{19}$ | 17.894736...
$\frac{340}{19}$ | $17\frac{17}{19}$
$\frac{340}{19}$ | $\frac{340}{19} \approx 17.89$
$\frac{340}{19}$ | $\frac{340}{19}$ (≈ 17.89)
$\frac{340}{19}$ | $\frac{340}{19}$, or about 17.89
35% | 0.35
35% | 35
35% | 35 percent
35% | $35\%$
35% | 35 %
$\sqrt{11}$ | sqrt(11)
$\sqrt{11}$ | √11
$\sqrt{11}$ | $\sqrt{11} \approx 3.32$
$\sqrt{11}$ | $11^{1/2}$
$\sqrt{11}$ | 11^(1/2)
$\sqrt{11}$ | 11^0.5
$\sqrt{11}$ | 3.31662479
$\sqrt{11}$ | $\sqrt{11}$ cm
$\sqrt{11}$ | $\sqrt{11}$ units
$\sqrt{11}$ | $r = \sqrt{11}$
$\sqrt{11}$ | $\sqrt {11}$
$4 \sqrt{6}-1$ | 4√6 - 1
$4 \sqrt{6}-1$ | -1 + 4\sqrt{6}
$4 \sqrt{6}-1$ | $\sqrt{96} - 1$
$\frac{3 \pi}{8}$ | 3π/8
$\frac{3 \pi}{8}$ | $\frac{3}{8}\pi$
$\frac{3 \pi}{8}$ | 3*pi/8
$\frac{3 \pi}{8}$ | $\frac{3\pi}{8} \approx 1.178$
$\frac{3 \pi}{8}$ | $\frac{3\pi}{8}$ radians
$5+2 \sqrt{3} i$ | 5 + 2i\sqrt{3}
$5+2 \sqrt{3} i$ | 5+2\sqrt3 i
$3^{700}$ | 3^700
$3^{700}$ | 3^{700}
$3^{700}$ | $9^{350}$
$3^{700}$ | 3**700
$\binom{3n}{n}$ | \frac{(3n)!}{n!(2n)!}
$\binom{3n}{n}$ | C(3n, n)
$\binom{3n}{n}$ | {3n \choose n}
$\binom{3n}{n}$ | \binom{3 n}{2 n}
$3 n+2$ | 3n+2
$3 n+2$ | 2 + 3n
$3 n+2$ | $f(n) = 3n+2$
$3 n+2$ | $3n + 2$ for all $n \ge 1$
$3 n+2$ | The maximum is $3n+2$.
$3 n+2$ | $S_n = 3n + 2$
$3 n+2$ | $3(n+1) - 1$
$3 n+2$ | 3n+2 moves
$3 n+2$ | $\boxed{3n+2}$ where $n$ is the number of points
$3 n+2$ | $3n + 2$, where $n$ is a positive integer.
$n^{2}-4 n+1$ | n² − 4n + 1
$n^{2}-4 n+1$ | (n-2)^2 - 3
$\lfloor\frac{3 n+1}{4}\rfloor$ | $\left\lfloor \frac{3n+1}{4} \right\rfloor$
$\lfloor\frac{3 n+1}{4}\rfloor$ | ⌊(3n+1)/4⌋
$\lfloor\frac{3 n+1}{4}\rfloor$ | floor((3n+1)/4)
\frac{A k^{2}}{2 m} | Ak^2/(2m)
\frac{A k^{2}}{2 m} | \frac{1}{2}\frac{A k^2}{m}
\frac{A k^{2}}{2 m} | $E = \frac{A k^2}{2m}$
e^{-3 t} \sin (2 t) | $e^{-3t}\sin(2t)$
e^{-3 t} \sin (2 t) | e^(-3t) sin(2t)
e^{-3 t} \sin (2 t) | $e^{-3t} \sin 2t$
e^{-3 t} \sin (2 t) | \sin(2t) e^{-3t}
e^{-3 t} \sin (2 t) | $x(t) = e^{-3t}\sin(2t)$
e^{-3 t} \sin (2 t) | \exp(-3t)\sin(2t)
e^{-3 t} \sin (2 t) | \frac{\sin(2t)}{e^{3t}}
\frac{1}{s^{2}+4} | 1/(s^2+4)
\frac{1}{s^{2}+4} | $F(s)=\frac{1}{s^2+4}$
\sqrt{8 \pi G \rho_{0}} | \sqrt{8\pi G\rho_0}
\sqrt{8 \pi G \rho_{0}} | $2\sqrt{2\pi G \rho_0}$
$(4,7)$ | (4, 7)
$(4,7)$ | $(x,y)=(4,7)$
$(4,7)$ | $x = 4, y = 7$
$(4,7)$ | x=4 and y=7
$(4,7)$ | $(4, 7)$ is the only solution
$(4,7)$ | The only pair is $(4,7)$.
$(4,7)$ | \left(4, 7\right)
$(4,7)$ | $\{(4,7)\}$
$(4,7)$ | the point (4,7)
$(1,-3,12)$ | $a=1, b=-3, c=12$
$(1,-3,12)$ | $(a,b,c) = (1, -3, 12)$
(-\infty,8) | $x<8$
(-\infty,8) | $x \in (-\infty, 8)$
(-\infty,8) | (-∞, 8)
(-\infty,8) | all $x < 8$
(-\infty,8) | all real numbers $x$ with $x<8$
(-\infty,8) | $\{x : x < 8\}$
(-\infty,8) | $\{x \in \mathbb{R} \mid x < 8\}$
(-\infty,8) | $a < 8$
$[\frac{1}{3}, 6]$ | $\frac13 \le x \le 6$
$[\frac{1}{3}, 6]$ | $x \in [1/3, 6]$
$[\frac{1}{3}, 6]$ | $1/3 ≤ x ≤ 6$
$[\frac{1}{3}, 6]$ | $x \ge \frac13$ and $x \le 6$
(2,9] | $2 < x \leq 9$
$(-\infty, 1) \cup\{4\}$ | $x < 1$ or $x = 4$
$(-\infty, 1) \cup\{4\}$ | $x \in (-\infty,1) \cup \{4\}$
$(-3,-1)\cup (2,\sqrt{7})$ | $-3<x<-1$ or $2<x<\sqrt7$
4,9 | 4 and 9
4,9 | $x=4$ or $x=9$
4,9 | 9, 4
4,9 | {4, 9}
4,9 | $\{4,9\}$
4,9 | x = 4, 9
4,9 | $x_1 = 4, x_2 = 9$
4,9 | The solutions are $x = 4$ and $x = 9$.
4,9 | both 4 and 9
4,9 | either 4 or 9
4,9 | $4; 9$
4,9 | $n \in \{4, 9\}$
4,9 | $\boxed{4}, \boxed{9}$
4,9 | $\boxed{4 \text{ and } 9}$
4,9 | $\boxed{4,9}$
4,9 | $n=4,9$
4,9 | 4 & 9
-5,0,5 | $0, \pm 5$
-5,0,5 | $-5, 0,$ and $5$
-5,0,5 | $x=0, x=5, x=-5$
$1+\sqrt{5}, 1-\sqrt{5}$ | $1\pm\sqrt{5}$
$1+\sqrt{5}, 1-\sqrt{5}$ | $x = 1 \pm \sqrt5$
$(0,3),(3,0)$ | $(3,0)$ and $(0,3)$
$(0,3),(3,0)$ | $(x,y) = (0,3), (3,0)$
$(0,3),(3,0)$ | $(x,y)=(0,3)$ or $(x,y)=(3,0)$
$(0,3),(3,0)$ | $\{(0,3),(3,0)\}$
$(0,3),(3,0)$ | $(x, y) \in \{(0,3), (3,0)\}$
$k=4$ | 4
$k=4$ | $k = 4$
$N=3^{n}-2$ | $3^n-2$
$f(x)=3 x-5$ | $3x-5$
$f(x)=3 x-5$ | $f(t) = 3t - 5$
$f(x)=3 x-5$ | f(x) = -5 + 3x for all real x
$f(x)=x$,$f(x)=5-x$ | $f(x) = x$ and $f(x) = 5 - x$
$f(x)=x$,$f(x)=5-x$ | $f(x) = x$ or $f(x) = 5-x$ for all $x$
$f(x)=x$,$f(x)=5-x$ | $f(x)=5-x, x$
$n \geqslant 6$ | $n \geq 6$
$n \geqslant 6$ | all $n \ge 6$
$n \geqslant 6$ | $n\ge 6$.
$n \geqslant 6$ | $6 \le n$
y^{\prime}+3 y=0 | $y' + 3y = 0$
y^{\prime}+3 y=0 | $y' = -3y$
AB=BC+CD | $BC + CD = AB$
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} | $\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}$
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} | $A = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$
8 | $n = 8$ works
8 | There are $8$ of them.
8 | $\boxed{8}$ (eight)
8 | 8 eggs
8 | 8 cm³
8 | $8\ \text{cm}^3$
8 | 8 m/s²
8 | 8 km²
8 | \text{8 meters}
8 | 8 in.
8 | 8 ft.
8 | 8 inches
8 | $8$ feet
8 | 8 hours and that is the final answer
8 | $d = 8$ units
8 | The minimum value is $8$, attained at $x = 2$.
8 | min = 8
8 | $\min = 8$
8 | $f_{\max} = 8$
8 | $n_{\min}=8$
8 | maximum: 8
8 | Maximum value: $8$
8 | Value: 8
8 | Result = 8
8 | $\text{Answer} = 8$
8 | k = 8.
8 | $k=8$ only
8 | $k = 8$ is the only possibility
8 | only 8
8 | exactly 8
8 | $\#S = 8$
8 | $\text{lcm}(2, 8) = 8$
8 | $\gcd(16, 24) = 8$
8 | $\log_2 256 = 8$
8 | $2^3$
8 | $2^{3} = 8$
8 | $\sqrt{64} = 8$
8 | $4!/3 = 8$
8 | $16/2$
8 | $\frac{16}{2} = 8$
8 | 8 = 2^3
8 | $8 = 2^3$.
8 | $1 + 2 + 5 = 8$
8 | $8\text{ (mod }10)$
8 | $8 \ (\bmod\ 10)$
8 | $\angle A = 8^{\circ}$, as required
8 | $8^\circ$
8 | $8\degree$
8 | \(\boxed{8}\).
8 | $\boxed{ 8 }$
8 | $\boxed{8.}$
8 | $\boxed{x = 8}$
8 | $x=\boxed{8}$
8 | $\mathbf{8}$
8 | **8**.
8 | *8*
8 | _8_
8 | $8$ \\
8 | $\textit{8}$
8 | $\underline{8}$
8 | \underline{\textbf{8}}
8 | Hence $x=8$.
8 | we find that $x=8$
8 | It follows that $x = 8$.
8 | This gives $8$.
8 | That is 8.
8 | which is 8
8 | So we have 8 possible values.
8 | So there are 8 possible values of $n$.
8 | $p+q+r = 1+2+5 = 8$.
8 | $a+b = 3+5 = \boxed{8}$
8 | $(a,b)=(3,5)$ so $a+b=8$
8 | $a = 3, b = 5$, and so $a+b = 8$
8 | $a=3$, $b=5$; therefore the answer is $8$
8 | $3+5=8$, so the answer is 8
8 | $8,$
8 | 8;
8 | 8 (Answer)
8 | 8 (exact)
8 | 8 (units)
8 | 8 [units]
8 | 8, i.e., $2^3$
8 | 8, that is $2^3$
8 | 8 (i.e. $2^3$)
8 | 8 (= $2^3$)
8 | 8 (which equals $2^3$)
8 | eight ways
8 | Eight
8 | +8
8 | $+8$
8 | 8 \, \text{J}
8 | $8\ \mathrm{J\,kg^{-1}\,K^{-1}}$
8 | $8 \frac{\text{m}}{\text{s}}$
8 | $8\,\frac{\mathrm{km}}{\mathrm{h}}$
8 | $8\ \mathrm{W/m^2}$
8 | $8\ \Omega$
8 | 8 ohms
8 | $8 \times 10^0$
8 | $8\ \text{mol}^{-1}$
8 | 8 kg·m/s
8 | 8 kg m s^-1
8 | 8 N·m
8 | 8 V
8 | 8 µm
8 | 8 °C
8 | 8 degrees Celsius
8 | 8 rad/s
8 | 8 bits
8 | 8 parsecs
8 | 8 Mpc
8 | 8 AU
8 | 8 light-years
8 | $8\,L_\odot$
8 | $8 M_{\rm sun}$
1.5 | $1.5$ or $\frac{3}{2}$
1.5 | $\frac32$
1.5 | 3/2
1.5 | 1½
1.5 | 1 1/2
1.5 | $1\frac12$
1.5 | 1.50 m
1.5 | $\approx 1.5$
1.5 | 1.5 (approx.)
1.5 | approx. 1.5
1.5 | approx 1.5
1.5 | Approximately $1.5$ years.
1.5 | $\simeq 1.5$
1.5 | $x \approx 1.5$ m
1.5 | $\boxed{\approx 1.5 \text{ m}}$
1.5 | $\boxed{1.5}$ (approximately)
1.5 | $\frac{3.0}{2} \approx 1.5$
$\frac{2}{7}$ | $0.285714$
$\frac{2}{7}$ | $0.\overline{285714}$
$\frac{2}{7}$ | $2/7$, approximately $0.286$
$\frac{2}{7}$ | $P(A) = \dfrac{2}{7}$
$2 \sqrt{3}$ | $2\sqrt3$
$2 \sqrt{3}$ | $\sqrt{12}$
$2 \sqrt{3}$ | 2 sqrt(3)
$2 \sqrt{3}$ | 2*3^(1/2)
$2 \sqrt{3}$ | $2\sqrt{3} \approx 3.464$
$2 \sqrt{3}$ | $\frac{6}{\sqrt{3}}$
$2 \sqrt{3}$ | $2\sqrt{3}$ square units
$2 \sqrt{3}$ | $\sqrt{12} = 2\sqrt{3}$
$2 \sqrt{3}$ | $AB = \sqrt{4+8} = \sqrt{12} = 2\sqrt{3}$
$\pi$ | π
$\pi$ | pi
$\pi$ | 3.14159265
$2^{n}-1$ | $2^n - 1$
$2^{n}-1$ | $a_n = 2^n - 1$
$2^{n}-1$ | 2^n-1
$2^{n}-1$ | $2^n-1$ for every positive integer $n$
$2^{n}-1$ | the answer is $2^n-1$
$2^{n}-1$ | $\sum_{k=0}^{n-1} 2^k = 2^n - 1$
$2^{n}-1$ | $2\cdot 2^{n-1}-1$
$\frac{n(n+1)}{2}$ | $\binom{n+1}{2}$
$\frac{n(n+1)}{2}$ | n(n+1)/2
$\frac{n(n+1)}{2}$ | \frac{1}{2}n(n+1)
$\frac{n(n+1)}{2}$ | (n^2+n)/2
$\frac{n(n+1)}{2}$ | $\frac{n^2}{2}+\frac{n}{2}$
$\lfloor n/2 \rfloor$ | $\left\lfloor\frac{n}{2}\right\rfloor$
$\lfloor n/2 \rfloor$ | floor(n/2)
$\log_2 3$ | $\frac{\ln 3}{\ln 2}$
$\log_2 3$ | \log_{2}(3)
$e^{2}$ | e^2
$e^{2}$ | $\exp(2)$
$|x|$ | \left|x\right|
$|x|$ | \lvert x \rvert
$x=2$ | x=2
$(2,3)$ | $(2,\ 3)$
$(2,3)$ | $(x, y) = (2, 3)$ is the unique solution
1,2 | $1$ and $2$ only
1,2 | x=1 and x=2
1,2 | 1, and 2
1,2 | $x = 1$, $2$
1,2 | $x_1=1$ and $x_2=2$
1,2 | $x \in\{2,1\}$
1,2 | Both $1$ and $2$.
1,2 | $n=1$ or $n=2$.
1,2 | The possible values are 1 and 2
1,2 | the integers 1 and 2
1,2 | $\boxed{1}$ and $\boxed{2}$
1,2 | $\boxed{x=1 \text{ or } x=2}$
1,2 | \boxed{1,\ 2}
$f(x)=0$ | $f(x)=0$ for all $x \in \mathbb{R}$
$f(x)=0$ | f \equiv 0
$f(x)=0$ | 0
$f(x)=0$ | $f(x) \equiv 0$
"""
WRONG = r"""
2.55e-10 | 0
2.55e-10 | 2.6e-10
12 | 1 2
16 | 2**4 + 1
8 | 2**2
540 | 540.0003
1/3 | 0.33
1/3 | 0.333
6m | 6
\frac{37}{4} m | 37/4
(2,4) | (4,2)
(1,3) | [1,3]
1,3 | (1,3)
1,1,2 | 1,2,2
k=1 | m=1
f(x)=2x | f(x)=2x+1
MR=SRMC | SRAC=LRAC
\sqrt{2} | 1.41
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} | \begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} | \begin{pmatrix} 2 \\ 1 \end{pmatrix}
\begin{pmatrix} 1 \\ 2 \end{pmatrix} | \begin{pmatrix} 12 \end{pmatrix}
5 | 5 or 6
100 | 1e3
1000 | 1,00
5 | \boxed{4}, \boxed{5}
5 | \boxed{4} \boxed{5}
42 | 42 and 43
42 | 41 < x < 43
42 | approximately 42.3
42 | 42 or so
42 | 42?
42 | 42 or more
42 | at least 42
42 | 42 minus 1
42 | 42 plus 3
42 | 42 + 1
42 | 42 squared
42 | the square of 42
42 | the square root of 42
42 | 42 thousand
42 | 42 dozen
42 | 42 hundred
42 | 42%
42 | 42/2
42 | 42:1
42 | 42 to 1
42 | 42 out of 50
42 | 42 in 50
42 | 42 of 50
42 | 42 in base 8
42 | 42 (base 8)
42 | $42_8$
42 | 0x42
42 | 42 octal
42 | It isn't 42
42 | anything but 42
42 | 42 is impossible
42 | 42 is not possible
42 | 42 cannot be right
42 | 42 was my initial guess; however 41 is right
42 | 42. Actually, 41.
42 | 42. Wait, it should be 41.
42 | 42 [41]
42 | 42 (41 if zero is excluded)
42 | (41, 42)
42 | [41, 42]
42 | {41, 42}
42 | 41|42
42 | $41$ $42$
42 | $41$, $42$
42 | 41 & 42
42 | 41 as well as 42
42 | 41, 42, 43
42 | 41 - 42
42 | 41–42
42 | between 41 and 43
42 | 42 ± 1
42 | $42 \pm 0.5$
42 | 1...42
42 | 1, 2, ..., 42
42 | x > 42
42 | x ≠ 42
42 | x ≥ 42
42 | $x \to 42$
42 | 42x
42 | $42 + C$
42 | $42i$
42 | $42\pi$
42 | $42!$
42 | $42^2$
42 | $42^{-1}$
42 | -42
42 | $x = 41, y = 42$
42 | $x = 41$ or $42$
42 | $x=41, 42$
42 | if n is odd 42, if n is even 41
42 | 42 if n is odd
42 | 42 when n is odd, and 41 when n is even
42 | 42 for n = 1, 41 for n = 2
42 | 42 for odd n; 41 for even n
42 | Let me guess: 41 or 42
42 | I'd say 41 or 42
42 | the answer is 41. the answer is 42.
42 | 42, 41 being also possible
42 | 42 (alternatively 41)
42 | 42, possibly 41
42 | one of 41, 42
42 | 41 (or 42)
42 | either
42 | 40 + 1 = 42
42 | 40 + 2 = 42 = 43
42 | 6*8=42
42 | $x = 6 \cdot 8 = 42$
42 | $m + n = 20 + 21 = 42$
42 | 42 ≈ 43
42 | twice 42
42 | half of 42
42 | double 42
42 | 42 doubled
42 | 42 halves
42 | minus 42
42 | negative 42
42 | 42 below zero
42 | 42 less than 100
42 | 42 more than x
42 | log 42
42 | ln(42)
42 | \sqrt{42}
42 | \frac{42}{41}
42 | 42 \times 10^3
42 | 42 x 10^2
42 | 42 million
42 | fourty-three
42 | forty-three
42 | four two
42 | forty or two
42 | two hundred forty-two
42 | \boxed{42}\boxed{42}2
42 | \boxed{\boxed{42}1}
42 | \boxed{42},\boxed{41}
42 | \boxed{42}^\text{nd}
42 | \boxed{4}\boxed{2}
42 | \boxed{42} - 1
42 | 100 - \boxed{42}
42 | \boxed{x \ge 42}
42 | \boxed{42 \text{ or } 41}
42 | \boxed{42}/\boxed{41}
42 | \boxed{42} / 41
42 | ~\boxed{42}~41
42 | \not{42}
42 | \cancel{42} 41
42 | \sout{42}
42 | ~~42~~ 41
42 | 42 -> 41
42 | 42 \Rightarrow 41
42 | 42 \implies 41
42 | 42 mod 41
42 | 42 \pmod{5}
42 | 42 div 2
42 | \min(42, 41)
42 | \max(42, 43)
42 | \gcd(42, 4)
42 | \binom{42}{2}
42 | C(42,2)
42 | \sum 42
42 | \int 42
42 | d42
42 | x_{42}
42 | a_42
42 | f(42)
42 | none of these, 42
42 | no solution
42 | there is no answer, not even 42
42 | 42nd
42 | 42th
42 | ∅
42 | {}
42 | undefined
42 | DNE
42 | NaN
42 | True
42 | \text{yes}
0 | nonzero
0 | 1/0
0 | 0 ways but 1 trivial
0 | nothing
1 | one or two
-6 | 6
-6 | ±6
-6 | |-6|
-6 | -6 or 6
3.7 | $\approx 3.74$
3.7 | about 4
3.7 | 3.7 ± 0.1
3.7 | 3.7x
3.7 | 3.5 - 3.9
3.7 | 3.5 to 3.9
6.1e-12 | 6.1 \times 10^{12}
6.1e-12 | 6.1 - 12
$\frac{5}{8}$ | 8/5
$\frac{5}{8}$ | 5, 8
$\frac{5}{8}$ | \frac{5}{8} x
$\frac{5}{8}$ | 5/8/2
$\frac{5}{8}$ | 1 5/8
$\frac{5}{8}$ | -5/8
$\frac{5}{8}$ | (5, 8)
$\frac{5}{8}$ | 5 8
$\frac{5}{8}$ | \frac{5}{8} \text{ or } \frac{3}{8}
$\frac{340}{19}$ | \approx 17.89
$\frac{340}{19}$ | 340/19 = 17.9
$\sqrt{11}$ | 11
$\sqrt{11}$ | \pm\sqrt{11}
$\sqrt{11}$ | 3.3
$\sqrt{11}$ | \sqrt{11} x
$\sqrt{11}$ | -\sqrt{11}
$\sqrt{11}$ | \sqrt{11}, -\sqrt{11}
$3^{700}$ | 3^{700} + 1
$3^{700}$ | 3^{701}
$3^{700}$ | 3700
$3 n+2$ | 3n-2
$3 n+2$ | 3n+2 or 3n+1
$3 n+2$ | 3m+2
$3 n+2$ | 3n+2 if n is even, 3n+1 otherwise
$3 n+2$ | n = 3n+2
$3 n+2$ | 3n + 2 = 5
$3 n+2$ | 3n+2 \le x
$3 n+2$ | at least 3n+2
$3 n+2$ | 3(n+2)
$3 n+2$ | f(3n+2)
$(4,7)$ | (7,4)
$(4,7)$ | 4 or 7
$(4,7)$ | [4,7]
$(4,7)$ | (4,7), (7,4)
$(4,7)$ | (4,7) or (7,4)
$(4,7)$ | x=7, y=4
$(4,7)$ | (4,7,0)
$(4,7)$ | 47
(-\infty,8) | x \le 8
(-\infty,8) | x > 8
(-\infty,8) | (-\infty,8]
(-\infty,8) | x < 9
(-\infty,8) | x < 8 or x > 10
(-\infty,8) | 8
(-\infty,8) | (8, \infty)
(2,9] | 2<x<9
(2,9] | (2,9)
(2,9] | {2,9}
4,9 | 4
4,9 | 4, 9, 10
4,9 | 4.9
4,9 | (4, 9)
4,9 | 4 or 9 or 10
4,9 | not 4, 9
4,9 | 4, 4
4,9 | [4, 9]
4,9 | 4 to 9
4,9 | 4-9
4,9 | 4/9
4,9 | x=4, y=10
4,9 | at least 4, 9
-5,0,5 | \pm 5
-5,0,5 | -5, 5
-5,0,5 | -5 \le x \le 5
$k=4$ | m = 4
$k=4$ | k = 5
$k=4$ | k > 4
$k=4$ | k \ge 4
$f(x)=3 x-5$ | g(x) = 3x-5
$f(x)=3 x-5$ | f(x) = 3x - 5 or f(x) = 0
$f(x)=3 x-5$ | f(x) = 3x-5, f(x) = x
$f(x)=3 x-5$ | f(3x-5)
$f(x)=3 x-5$ | f(t) = 3x-5
$f(x)=3 x-5$ | x = 3x - 5
$f(x)=x$,$f(x)=5-x$ | $f(x)=x$
$n \geqslant 6$ | n > 6
$n \geqslant 6$ | n \le 6
$n \geqslant 6$ | n = 6
$n \geqslant 6$ | 6
$n \geqslant 6$ | m \ge 6
y^{\prime}+3 y=0 | y' - 3y = 0
y^{\prime}+3 y=0 | y' + 3y
y^{\prime}+3 y=0 | y = 0
8 | 8 works, 9 works
8 | n = 8 works but so does 9
8 | 8 and also 9
8 | 8 plus or minus 1
8 | 8 +/- 1
8 | 8 over 3
8 | 8 per 100
8 | 8 choose 2
8 | 8C2
8 | (8)(9)
8 | 8·9
8 | 8 cm by 9 cm
8 | 8 x 9
8 | 8 by 9
8 | 8 or 9 cm
8 | eight or nine
8 | eight nine
8 | eighty
8 | eighteen
8 | eighth
8 | an eighth
8 | one eighth
8 | 8^8
8 | ‒8
8 | ~8~9
8 | 8 (9)
8 | 8, (9)
8 | 8 {9}
8 | 8[9]
8 | 8 = x = 9
8 | x = 8, so x + 1 = 9
8 | x = 8, thus the answer is 9
8 | Since x = 8, the answer is 9
8 | The answer isn't 8
8 | The answer ain't 8
8 | The answer can't be 8
8 | The answer would be 8 if n were even
8 | It would be 8 in that case, otherwise 9
8 | 8 assuming n is odd
8 | 8 provided that n is odd
8 | 8 given n odd, 9 given n even
8 | n odd: 8, n even: 9
8 | case 1: 8, case 2: 9
8 | First: 8. Second: 9.
8 | A: 8, B: 9
8 | (a) 8 (b) 9
8 | (i) 8, (ii) 9
8 | Part 1: 8; Part 2: 9
8 | Option A: 8 Option B: 9
8 | 8 vs 9
8 | 8 versus 9
8 | 8 < 9
8 | x = 8 < 9
8 | x ≤ 8
8 | max 8
8 | min 8
8 | up to 8
8 | 8 max
8 | 8 at most
8 | 8+
8 | 8-
8 | 8--
8 | >8
8 | ≥8
8 | 8 ≤ x
8 | around 8 or 9
8 | 8ish or 9
8 | 8-9
8 | 8…9
8 | 8..9
8 | 8,...,9
8 | from 8
8 | starting at 8, ending at 9
8 | nearly 9
8 | almost 8.1
8 | x=8, x=-8
8 | \pm 8
8 | ±8
8 | $\{8,-8\}$
8 | |8| or |9|
8 | 8 \vee 9
8 | 8 \wedge 9
8 | 8 \cup 9
8 | 8 \to 9
8 | 8 \mapsto 9
8 | 8 \mid 9
8 | 8 \parallel 9
8 | 8 \oplus 1
8 | 8 \cdot
8 | 8 \times
8 | 8 \div 2
8 | 8 \sqrt{2}
8 | \sqrt[8]{8}
8 | \log 8
8 | 8'
8 | 8''
8 | \dot 8
8 | \bar{8}
8 | \overline{8}9
8 | \overline{89}
8 | {8}^{2}
8 | {8}{9}
8 | $8$$9$
8 | \text{8}\text{9}
8 | \text{8 or 9}
8 | \mbox{8 or 9}
8 | \boxed{8}\text{ or }9
8 | \boxed{\boxed{8}\boxed{9}}
8 | \boxed{8\boxed{9}}
8 | \boxed{8},9
8 | \boxed{8} 9
8 | \boxed{8}{9}
8 | \boxed{8}(9)
8 | (9)\boxed{8}
8 | 9(\boxed{8})
8 | x\boxed{8}
8 | \boxed{8}\%
8 | \boxed{8}^\circ F or 9
8 | \boxed{8}_9
8 | \boxed{8}e1
8 | 1.\boxed{8}
8 | \boxed{8}:\boxed{9}
8 | \boxed{8} \text{ thousand}
8 | \boxed{8} \text{ is wrong}
8 | \boxed{8} (wrong)
8 | \boxed{8} X
8 | \boxed{8}?
8 | \boxed{8}!
8 | \boxed{8\ldots}
8 | \boxed{\ne 8}
8 | \boxed{\text{not }8}
8 | \boxed{< 8}
8 | \boxed{8+}
8 | \sout{8} 9
8 | \xcancel{8}
8 | \strike{8}
8 | my answer: 8, her answer: 9
8 | 8 is one possible answer
8 | 8 is a possible answer
8 | 8 is among the answers
8 | 8 seems right, or maybe 9
8 | I'd go with 8, though 9 is plausible
8 | I think 8. Or 9.
8 | 8. Also 9.
8 | 8. Hmm, 9.
8 | 8 → wrong, 9
8 | Neither 8 nor 9
8 | 8 xor 9
8 | 8 oder 9
8 | 8 ou 9
8 | 8 或 9
8 | 8、9
8 | none of the above, 8
8 | everything except 8
8 | no more than 8
8 | not less than 8
8 | 8 fewer
8 | 8 more
8 | half 8
8 | the reciprocal of 8
8 | the negative of 8
8 | negative eight
8 | minus eight
8 | eight hundred
8 | eight and a half
8 | 8 and a half
8 | 8 and 1/2
8 | 8 1/2
8 | 8\frac12
8 | 8 remainder 1
8 | 8 \pmod 3
8 | 17 \equiv 8 \pmod{3}
8 | 2^3 = 9
8 | 2 \cdot 4 = 8 = 9
8 | x = 8/2
8 | 8/1/2
8 | C_8
1.5 | 1.4 or 1.5
1.5 | about 1.45
1.5 | ≈ 1.52
1.5 | 1.5 = 2
1.5 | 1,5
1.5 | 1:5
1.5 | 1.5^2
1.5 | 1 5
$\frac{2}{7}$ | ≈ 0.286
$\frac{2}{7}$ | 2:7
$\frac{2}{7}$ | 2/7 or 3/7
$\frac{2}{7}$ | 1 - 2/7
$2 \sqrt{3}$ | 2\sqrt{3}i
$2 \sqrt{3}$ | 3.46
$2 \sqrt{3}$ | 3\sqrt{2}
$2 \sqrt{3}$ | \sqrt{2 \cdot 3}
$2 \sqrt{3}$ | 2 or \sqrt 3
$\pi$ | 3.14
$\pi$ | 22/7
$\pi$ | \Pi
$2^{n}-1$ | 2^{n-1}
$2^{n}-1$ | 2^n
$2^{n}-1$ | 2n - 1
$2^{n}-1$ | 2^n-1 or 2^n
$2^{n}-1$ | 2^m-1
$\frac{n(n+1)}{2}$ | n(n-1)/2
$\frac{n(n+1)}{2}$ | \frac{n(n+1)}{2} = \frac{n^2+1}{2}
$|x|$ | x
$|x|$ | -x
$|x|$ | \sqrt{x}
$|x|$ | x, -x
$(2,3)$ | (2,3) and (3,2)
1,2 | 1,2,3
1,2 | (1,2)
1,2 | x=1, y=2, z=3
1,2 | 1 ≤ x ≤ 2
$f(x)=0$ | f(x)=1
$f(x)=0$ | f(x) = x
$f(x)=0$ | f(x)=0 or f(x)=1
"""


def pairs(text: str) -> list[tuple[str, str]]:
    """(gold answer, answer line)."""
    return [tuple(line.split(" | ", 1)) for line in text.strip().split("\n")]
